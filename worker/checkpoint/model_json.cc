#include "worker/checkpoint/model_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/json_members.h"

namespace sherd {
namespace {

constexpr int64_t kMaxModelSize = 1 << 24;

// What only a Llama has, and the rules that only it obeys.
absl::Status ParseLlama(const nlohmann::json& json, ModelShape& model) {
  JsonMembers members(json);
  model.norm_eps = members.Real("norm_eps");
  const nlohmann::json& rotary_json = members.Object("rotary");
  SHERD_RETURN_IF_ERROR(members.status());
  JsonMembers rotary(rotary_json);
  model.rotary.theta = rotary.Real("theta");
  model.rotary.factor = rotary.Real("factor");
  model.rotary.low_freq_factor = rotary.Real("low_freq_factor");
  model.rotary.high_freq_factor = rotary.Real("high_freq_factor");
  model.rotary.original_context = rotary.Size("original_context");
  SHERD_RETURN_IF_ERROR(rotary.status());
  if (model.heads % model.kv_heads != 0 || model.head_size() % 2 != 0) {
    return WrongManifest("describes heads that do not fit each other");
  }
  if (!(model.norm_eps > 0) || !(model.rotary.theta > 0) || !(model.rotary.factor >= 1) ||
      !(model.rotary.low_freq_factor < model.rotary.high_freq_factor) ||
      model.rotary.original_context < 1) {
    return WrongManifest("describes an impossible norm or rotary embedding");
  }
  return absl::OkStatus();
}

}  // namespace

nlohmann::json ModelJson(const ModelShape& model) {
  const bool llama = model.arch == Architecture::kLlama;
  nlohmann::json json = {{"arch", llama ? "llama" : "gpt2"},
                         {"layers", model.layers},
                         {"hidden", model.hidden},
                         {"heads", model.heads},
                         {"kv_heads", model.kv_heads},
                         {"ffn", model.ffn},
                         {"vocab", model.vocab},
                         {"context", model.context},
                         {"tie_embeddings", model.tie_embeddings}};
  if (!llama) return json;
  json["norm_eps"] = model.norm_eps;
  json["rotary"] = {{"theta", model.rotary.theta},
                    {"factor", model.rotary.factor},
                    {"low_freq_factor", model.rotary.low_freq_factor},
                    {"high_freq_factor", model.rotary.high_freq_factor},
                    {"original_context", model.rotary.original_context}};
  return json;
}

absl::StatusOr<ModelShape> ParseModel(const nlohmann::json& json) {
  JsonMembers members(json);
  ModelShape model;
  const std::string arch = members.String("arch");
  model.layers = members.Size("layers");
  model.hidden = members.Size("hidden");
  model.heads = members.Size("heads");
  model.kv_heads = members.Size("kv_heads");
  model.ffn = members.Size("ffn");
  model.vocab = members.Size("vocab");
  model.context = members.Size("context");
  model.tie_embeddings = members.Bool("tie_embeddings");
  SHERD_RETURN_IF_ERROR(members.status());
  if (arch != "gpt2" && arch != "llama") {
    return WrongManifest(absl::StrCat("names the unknown architecture \"", arch, "\""));
  }
  // So that no later product of two sizes overflows.
  for (const int64_t size : {model.layers, model.hidden, model.heads, model.kv_heads, model.ffn,
                             model.vocab, model.context}) {
    if (size < 1 || size > kMaxModelSize) return WrongManifest("describes an impossible model");
  }
  if (model.hidden % model.heads != 0)
    return WrongManifest("describes heads that do not divide hidden");
  if (arch == "llama") {
    model.arch = Architecture::kLlama;
    SHERD_RETURN_IF_ERROR(ParseLlama(json, model));
  } else if (model.kv_heads != model.heads) {
    return WrongManifest("describes heads that do not fit each other");
  }
  return model;
}

}  // namespace sherd
