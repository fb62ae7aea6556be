#include "plan/model_config.h"

#include <random>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "plan/job_spec.h"
#include "plan/model_folder.h"

namespace sherd {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// The published configuration of GPT-2, as it has been since before most of its keys existed.
Json Gpt2Config() {
  return Json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_type": "cls_index", "task_specific_params": {"text-generation": {"do_sample": true}},
    "vocab_size": 50257})");
}

// That of Llama 3.2 1B.
Json LlamaConfig() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128256})");
}

v1::ModelSpec Preset(const char* name) {
  v1::JobSpec spec;
  spec.mutable_model()->set_preset(name);
  v1::ModelSpec model = NormalizeJobSpec(spec).model();
  model.clear_preset();
  return model;
}

v1::ModelSpec Parsed(const Json& config) {
  const absl::StatusOr<v1::ModelSpec> model = ParseModelConfig(config.dump());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.value_or(v1::ModelSpec());
}

std::string Error(const Json& config) {
  return std::string(ParseModelConfig(config.dump()).status().message());
}

// The presets are the published models.
TEST(ModelConfig, ReadsThePublishedConfigurations) {
  EXPECT_TRUE(MessageDifferencer::Equals(Parsed(Gpt2Config()), Preset("gpt2-124m")));
  EXPECT_TRUE(MessageDifferencer::Equals(Parsed(LlamaConfig()), Preset("llama3-1b")));
}

TEST(ModelConfig, ReadsBothSpellingsOfRotaryScaling) {
  Json config = LlamaConfig();
  Json rope = config["rope_scaling"];
  rope["rope_theta"] = config["rope_theta"];
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = rope;
  EXPECT_TRUE(MessageDifferencer::Equals(Parsed(config), Preset("llama3-1b")));
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7.0}};
  EXPECT_FALSE(Parsed(config).has_rope_scaling());
  EXPECT_EQ(Parsed(config).rope_theta(), 7);
}

// As the common stack has them.
TEST(ModelConfig, TakesTheStacksDefaults) {
  Json config = LlamaConfig();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_scaling", "rope_theta",
                          "tie_word_embeddings", "head_dim"}) {
    config[key] = nullptr;
  }
  const v1::ModelSpec model = Parsed(config);
  EXPECT_EQ(model.kv_heads(), 32);
  EXPECT_EQ(model.norm_eps(), 1e-6);
  EXPECT_EQ(model.rope_theta(), 10000);
  EXPECT_FALSE(model.tie_embeddings());
  EXPECT_FALSE(model.has_rope_scaling());
}

TEST(ModelConfig, RefusesByNameWhatWouldComputeSomethingElse) {
  const std::pair<const char*, Json> gpt2[] = {{"activation_function", "relu"},
                                               {"scale_attn_weights", false},
                                               {"scale_attn_by_inverse_layer_idx", true},
                                               {"add_cross_attention", true},
                                               {"layer_norm_epsilon", 1e-6},
                                               {"quantization_config", {{"bits", 4}}},
                                               {"architectures", {"GPT2ForTokenClassification"}},
                                               {"n_embd", nullptr},
                                               {"n_layer", -1},
                                               {"n_head", "12"},
                                               {"vocab_size", 1e30},
                                               {"tie_word_embeddings", 1}};
  for (const auto& [key, value] : gpt2) {
    Json config = Gpt2Config();
    config[key] = value;
    EXPECT_THAT(Error(config), HasSubstr(key)) << config[key];
  }
  const std::pair<const char*, Json> llama[] = {
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"head_dim", 128},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}},
      {"rope_scaling", 8},
      {"rms_norm_eps", "small"},
      {"model_type", "qwen2"}};
  for (const auto& [key, value] : llama) {
    Json config = LlamaConfig();
    config[key] = value;
    EXPECT_THAT(Error(config), HasSubstr(key)) << config[key];
  }
  EXPECT_THAT(Error(Json::array()), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error(Json::object()), HasSubstr("model_type is missing"));
}

// Our own rules, before anything is made of the sizes.
TEST(ModelConfig, RefusesShapesThatCannotBe) {
  Json config = Gpt2Config();
  config["n_head"] = 5;
  EXPECT_THAT(Error(config), HasSubstr("heads 5 does not divide hidden 768"));
  config = LlamaConfig();
  config["num_hidden_layers"] = 2000000;
  EXPECT_THAT(Error(config), HasSubstr("model.layers"));
}

TEST(ModelConfig, ReadsWhatItWrites) {
  for (const char* preset : {"gpt2-bytes", "gpt2-1.5b", "llama-15m", "llama3-1b", "llama3-8b"}) {
    const v1::ModelSpec model = Preset(preset);
    const auto read = ParseModelConfig(FormatModelConfig(ShapeOf(model), "float16"));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*read, model)) << preset;
  }
}

v1::JobSpec FromFolder() {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_model()->set_from("folder");
  spec.mutable_data()->add_train("corpus.bin");
  spec.mutable_data()->set_format(v1::DATA_FORMAT_LLMC);
  spec.mutable_train()->set_steps(10);
  return spec;
}

std::vector<std::string> Fields(const v1::InvalidFields& invalid) {
  std::vector<std::string> fields;
  for (const v1::InvalidField& field : invalid.fields()) fields.push_back(field.field());
  return fields;
}

// What only the folder knows is neither made up nor missed before it is read.
TEST(ModelFolder, TheShapeIsTheFolders) {
  v1::JobSpec spec = NormalizeJobSpec(FromFolder());
  EXPECT_TRUE(AwaitsShape(spec.model()));
  EXPECT_TRUE(MessageDifferencer::Equals(spec.model(), FromFolder().model()));
  EXPECT_THAT(Fields(ValidateJobSpec(spec)), ElementsAre());
  spec.mutable_train()->set_steps(-1);
  EXPECT_THAT(Fields(ValidateJobSpec(spec)), ElementsAre("train.steps"));
  spec.mutable_train()->set_steps(1);
  EXPECT_THAT(Fields(TakeShape(Preset("llama3-1b"), *spec.mutable_model())), ElementsAre());
  EXPECT_EQ(spec.model().from(), "folder");
  const v1::JobSpec complete = NormalizeJobSpec(spec);
  EXPECT_FALSE(AwaitsShape(complete.model()));
  EXPECT_EQ(complete.model().rope_theta(), 5e5);
  EXPECT_EQ(complete.train().seq_len(), 131072);
  EXPECT_THAT(Fields(ValidateJobSpec(complete)), ElementsAre());
  EXPECT_TRUE(MessageDifferencer::Equals(NormalizeJobSpec(complete), complete));
}

TEST(ModelFolder, WhatIsGivenBesideMustAgree) {
  const v1::ModelSpec folder = Preset("llama3-1b");
  v1::ModelSpec model = FromFolder().model();
  model.set_hidden(2048);
  model.set_tie_embeddings(true);
  model.mutable_rope_scaling()->set_factor(32);
  EXPECT_THAT(Fields(TakeShape(folder, model)), ElementsAre());
  model.set_arch(v1::ARCHITECTURE_GPT2);
  model.set_layers(17);
  model.set_tie_embeddings(false);
  model.set_rope_theta(10000);
  model.mutable_rope_scaling()->set_original_context(4096);
  const v1::ModelSpec before = model;
  const v1::InvalidFields different = TakeShape(folder, model);
  EXPECT_THAT(Fields(different),
              ElementsAre("model.arch", "model.layers", "model.tie_embeddings", "model.rope_theta",
                          "model.rope_scaling.original_context"));
  EXPECT_EQ(different.fields(1).description(),
            "17 is not what config.json of model.from says, which is 16; leave it out");
  EXPECT_TRUE(MessageDifferencer::Equals(model, before));
  model = FromFolder().model();
  model.mutable_rope_scaling()->set_factor(2);
  EXPECT_THAT(Fields(TakeShape(Preset("gpt2-124m"), model)), ElementsAre("model.rope_scaling"));
}

TEST(ModelFolder, APresetBesideItIsRefused) {
  v1::JobSpec spec = FromFolder();
  spec.mutable_model()->set_preset("gpt2-124m");
  EXPECT_THAT(Fields(ValidateJobSpec(NormalizeJobSpec(spec))), ElementsAre("model.preset"));
  spec = FromFolder();
  spec.mutable_model()->set_from("a\nb");
  EXPECT_THAT(Fields(ValidateJobSpec(NormalizeJobSpec(spec))), ElementsAre("model.from"));
}

}  // namespace
}  // namespace sherd
