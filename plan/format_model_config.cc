#include <utility>

#include "nlohmann/json.hpp"
#include "plan/model_config.h"

namespace sherd {
namespace {

// In the order in which they are written.
using Json = nlohmann::ordered_json;

void AddGpt2(const ModelShape& shape, Json& json) {
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["activation_function"] = "gelu_new";
  json["n_layer"] = shape.layers;
  json["n_embd"] = shape.hidden;
  json["n_head"] = shape.heads;
  json["n_inner"] = shape.ffn;
  json["n_positions"] = shape.context;
  json["layer_norm_epsilon"] = 1e-5;
  // Without them the common stack would apply its defaults when it trains.
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) json[dropout] = 0.0;
}

void AddLlama(const ModelShape& shape, Json& json) {
  json["architectures"] = {"LlamaForCausalLM"};
  json["model_type"] = "llama";
  json["hidden_act"] = "silu";
  json["num_hidden_layers"] = shape.layers;
  json["hidden_size"] = shape.hidden;
  json["num_attention_heads"] = shape.heads;
  json["num_key_value_heads"] = shape.kv_heads;
  json["head_dim"] = shape.head_size();
  json["intermediate_size"] = shape.ffn;
  json["max_position_embeddings"] = shape.context;
  json["rms_norm_eps"] = shape.norm_eps;
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  // The older spelling, which newer versions read as well.
  json["rope_theta"] = shape.rotary.theta;
  json["rope_scaling"] = nullptr;
  if (shape.rotary.factor == 1) return;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", shape.rotary.factor},
                          {"low_freq_factor", shape.rotary.low_freq_factor},
                          {"high_freq_factor", shape.rotary.high_freq_factor},
                          {"original_max_position_embeddings", shape.rotary.original_context}};
}

}  // namespace

std::string FormatModelConfig(const ModelShape& shape, absl::string_view torch_dtype) {
  Json json;
  if (shape.arch == Architecture::kLlama) {
    AddLlama(shape, json);
  } else {
    AddGpt2(shape, json);
  }
  json["vocab_size"] = shape.vocab;
  json["tie_word_embeddings"] = shape.tie_embeddings;
  json["torch_dtype"] = std::string(torch_dtype);
  // The default ids need not be in this vocabulary.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  return json.dump(2) + "\n";
}

}  // namespace sherd
