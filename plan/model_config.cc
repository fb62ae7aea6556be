#include "plan/model_config.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bounded_json.h"
#include "common/status_macros.h"
#include "plan/model_rules.h"
#include "plan/spec_rules.h"

namespace sherd {
namespace {

using Json = nlohmann::json;

// The only one that our GPT-2 is computed with.
constexpr double kGpt2Epsilon = 1e-5;

// Reads members of config.json and remembers the first thing that is wrong. A member that is null
// counts as one that is not there: then the common stack's default holds.
class ConfigReader {
 public:
  // `place` goes before every key: "" or "rope_scaling.".
  ConfigReader(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  bool Has(const char* key) const { return Find(key) != nullptr; }
  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t Size(const char* key) {
    if (Has(key)) return SizeOr(key, 0);
    Refuse(key, "is missing");
    return 0;
  }
  int64_t SizeOr(const char* key, int64_t otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number_unsigned() &&
        value->get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()}) {
      return value->get<int64_t>();
    }
    Refuse(key, "must be a whole number from 0 to 2147483647");
    return 0;
  }
  double Real(const char* key) {
    if (Has(key)) return RealOr(key, 0);
    Refuse(key, "is missing");
    return 0;
  }
  double RealOr(const char* key, double otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number()) return value->get<double>();
    Refuse(key, "must be a number");
    return 0;
  }
  bool FlagOr(const char* key, bool otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    Refuse(key, "must be true or false");
    return otherwise;
  }
  std::string TextOr(const char* key, const char* otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    Refuse(key, "must be a string");
    return otherwise;
  }

  void Require(const char* key, bool supported) {
    if (FlagOr(key, supported) != supported) {
      Refuse(key, absl::StrCat("is not supported as ", supported ? "false" : "true"));
    }
  }
  void RequireText(const char* key, const char* otherwise, const std::vector<const char*>& known) {
    const std::string text = TextOr(key, otherwise);
    for (const char* name : known) {
      if (text == name) return;
    }
    Refuse(key, absl::StrCat("\"", text,
                             "\" is not supported; supported: ", absl::StrJoin(known, ", ")));
  }
  void Refuse(absl::string_view key, absl::string_view what) {
    if (wrong_.empty()) wrong_ = absl::StrCat(place_, key, " ", what);
  }
  absl::Status status() const {
    return wrong_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(wrong_);
  }

 private:
  const Json& object_;
  const std::string place_;
  std::string wrong_;
};

// What would be other tensors or other arithmetic for either architecture.
void CheckCommon(ConfigReader& config, const std::vector<const char*>& architectures) {
  if (config.Has("quantization_config")) {
    config.Refuse("quantization_config", "is not supported: give weights in bf16, fp16 or fp32");
  }
  const Json* listed = config.Find("architectures");
  if (listed == nullptr) return;
  for (const char* known : architectures) {
    if (listed->is_array() && listed->size() == 1 && listed->front() == known) return;
  }
  config.Refuse("architectures", absl::StrCat(listed->dump().substr(0, 200),
                                              " is not supported; supported is one of ",
                                              absl::StrJoin(architectures, ", ")));
}

void ReadGpt2(ConfigReader& config, v1::ModelSpec& model) {
  CheckCommon(config, {"GPT2LMHeadModel", "GPT2Model"});
  config.RequireText("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  config.Require("scale_attn_weights", true);
  config.Require("scale_attn_by_inverse_layer_idx", false);
  config.Require("add_cross_attention", false);
  if (const double epsilon = config.RealOr("layer_norm_epsilon", kGpt2Epsilon);
      epsilon != kGpt2Epsilon) {
    config.Refuse("layer_norm_epsilon",
                  absl::StrCat(epsilon, " is not supported; supported: ", kGpt2Epsilon));
  }
  model.set_arch(v1::ARCHITECTURE_GPT2);
  model.set_layers(config.Size("n_layer"));
  model.set_hidden(config.Size("n_embd"));
  model.set_heads(config.Size("n_head"));
  model.set_kv_heads(model.heads());
  model.set_ffn(config.SizeOr("n_inner", 4 * model.hidden()));
  model.set_vocab(config.Size("vocab_size"));
  model.set_context(config.Size("n_positions"));
  model.set_tie_embeddings(config.FlagOr("tie_word_embeddings", true));
}

// `json` is rope_scaling, or rope_parameters, where newer versions write the base as well.
absl::Status ReadRope(const char* key, const Json& json, v1::ModelSpec& model) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(key, " must be an object or null"));
  }
  ConfigReader rope(json, absl::StrCat(key, "."));
  if (rope.Has("rope_theta")) model.set_rope_theta(rope.Real("rope_theta"));
  if (rope.RealOr("partial_rotary_factor", 1) != 1) {
    rope.Refuse("partial_rotary_factor", "is not supported unless it is 1");
  }
  // Older versions say "type".
  const char* const kind = rope.Has("rope_type") ? "rope_type" : "type";
  rope.RequireText(kind, "default", {"default", "llama3"});
  if (rope.TextOr(kind, "default") == "llama3") {
    v1::RopeScaling& scaling = *model.mutable_rope_scaling();
    scaling.set_factor(rope.Real("factor"));
    scaling.set_low_freq_factor(rope.Real("low_freq_factor"));
    scaling.set_high_freq_factor(rope.Real("high_freq_factor"));
    scaling.set_original_context(rope.Size("original_max_position_embeddings"));
  }
  return rope.status();
}

void CheckHeadSize(ConfigReader& config, const v1::ModelSpec& model) {
  const int64_t head_size = config.SizeOr("head_dim", 0);
  if (head_size == 0 || model.heads() == 0) return;
  if (head_size * model.heads() == model.hidden()) return;
  config.Refuse("head_dim", absl::StrCat(head_size, " is not supported: of hidden_size ",
                                         model.hidden(), " and num_attention_heads ", model.heads(),
                                         " only their quotient is"));
}

absl::Status ReadLlama(ConfigReader& config, v1::ModelSpec& model) {
  CheckCommon(config, {"LlamaForCausalLM", "LlamaModel"});
  config.RequireText("hidden_act", "silu", {"silu"});
  config.Require("attention_bias", false);
  config.Require("mlp_bias", false);
  model.set_arch(v1::ARCHITECTURE_LLAMA);
  model.set_layers(config.Size("num_hidden_layers"));
  model.set_hidden(config.Size("hidden_size"));
  model.set_heads(config.Size("num_attention_heads"));
  model.set_kv_heads(config.SizeOr("num_key_value_heads", model.heads()));
  model.set_ffn(config.Size("intermediate_size"));
  model.set_vocab(config.Size("vocab_size"));
  model.set_context(config.Size("max_position_embeddings"));
  model.set_tie_embeddings(config.FlagOr("tie_word_embeddings", false));
  model.set_norm_eps(config.RealOr("rms_norm_eps", 1e-6));
  model.set_rope_theta(config.RealOr("rope_theta", 10000));
  CheckHeadSize(config, model);
  const char* const key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (const Json* rope = config.Find(key)) SHERD_RETURN_IF_ERROR(ReadRope(key, *rope, model));
  return absl::OkStatus();
}

// Proto zeros mean "not given", so what a rule says of them would mislead.
absl::Status CheckShape(const v1::ModelSpec& model) {
  SpecRules rules;
  CheckModel(model, rules);
  const v1::InvalidFields wrong = std::move(rules).Take();
  if (wrong.fields().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrJoin(wrong.fields(), "; ", [](std::string* out, const v1::InvalidField& field) {
        absl::StrAppend(out, field.field(), ": ", field.description());
      }));
}

}  // namespace

absl::StatusOr<v1::ModelSpec> ParseModelConfig(absl::string_view text) {
  SHERD_ASSIGN_OR_RETURN(const Json json, ParseBoundedJson(text, {.depth = 8, .values = 1 << 16}));
  if (!json.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  ConfigReader config(json, "");
  v1::ModelSpec model;
  if (!config.Has("model_type")) config.Refuse("model_type", "is missing: gpt2 or llama");
  config.RequireText("model_type", "", {"gpt2", "llama"});
  SHERD_RETURN_IF_ERROR(config.status());
  if (config.TextOr("model_type", "") == "gpt2") {
    ReadGpt2(config, model);
  } else {
    SHERD_RETURN_IF_ERROR(ReadLlama(config, model));
  }
  SHERD_RETURN_IF_ERROR(config.status());
  SHERD_RETURN_IF_ERROR(CheckShape(model));
  return model;
}

}  // namespace sherd
