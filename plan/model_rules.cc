#include "plan/model_rules.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/job_spec.h"
#include "plan/model_folder.h"
#include "plan/presets.h"

namespace sherd {
namespace {

constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxHidden = int64_t{1} << 16;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxFfn = int64_t{1} << 20;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr double kMaxParameters = 4e12;
// A smaller one is 0 in fp32, and 0 / 0 where a row is zero.
constexpr double kMinEpsilon = 1e-30;
constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;
constexpr size_t kMaxNameLength = 100;

// At most `most` bytes of `text`, cut between characters.
std::string Shorten(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (most > 0 && continues(most)) --most;
  return text.substr(0, most);
}

// The nearest divisors of `of` below and above `value`.
std::vector<int64_t> NearestDivisors(int64_t of, int64_t value) {
  std::vector<int64_t> nearest;
  int64_t below = std::min(value, of);
  while (below > 1 && of % below != 0) --below;
  nearest.push_back(below);
  for (int64_t above = value + 1; above <= of && above <= kMaxHeads; ++above) {
    if (of % above != 0) continue;
    nearest.push_back(above);
    break;
  }
  return nearest;
}

// The fewest heads of hidden that divide `of` and are not too wide; 0 when there are none.
int64_t FewestHeads(int64_t hidden, int64_t of) {
  for (int64_t heads = (hidden + kMaxHeadChannels - 1) / kMaxHeadChannels; heads <= kMaxHeads;
       ++heads) {
    if (of % heads == 0) return heads;
  }
  return 0;
}

// True when the preset, if any, is one of ours: without it, sizes that are missing say nothing.
bool CheckPreset(const v1::ModelSpec& model, SpecRules& rules) {
  if (model.preset().empty() || FindPreset(model.preset()).has_value()) return true;
  const std::string nearest = Nearest(model.preset(), PresetNames());
  rules.Add("model.preset",
            absl::StrCat("there is no preset '", Shorten(model.preset(), kMaxNameLength), "'",
                         nearest.empty() ? "." : absl::StrCat("; did you mean '", nearest, "'?"),
                         " Presets are ", absl::StrJoin(PresetNames(), ", ")));
  return false;
}

// In floating point: the product of sizes within their own bounds may exceed int64.
double ApproximateParameters(const v1::ModelSpec& model) {
  const double hidden = static_cast<double>(model.hidden());
  // Llama's gate is a third matrix of the MLP.
  const double mlp_matrices = model.arch() == v1::ARCHITECTURE_LLAMA ? 3 : 2;
  const double block =
      4 * hidden * hidden + mlp_matrices * hidden * static_cast<double>(model.ffn());
  const double embeddings = model.tie_embeddings() ? 1 : 2;
  return static_cast<double>(model.layers()) * block +
         hidden * (embeddings * static_cast<double>(model.vocab()) +
                   static_cast<double>(model.context()));
}

// "heads 5 does not divide hidden 384; the nearest that do are 4 and 6".
std::string DividesNotText(absl::string_view problem, const std::vector<int64_t>& nearest) {
  return absl::StrCat(problem, NearestThatDoText(nearest));
}

// "heads 6, which the preset 'gpt2-bytes' has".
std::string OfPreset(absl::string_view key, int64_t value, const v1::ModelSpec& model) {
  return absl::StrCat(key, " ", value, ", which the preset '", model.preset(), "' has");
}

// The preset's heads do not go with a `hidden` that was given: only the latter was written. True
// when that is so.
bool CheckHiddenOfPreset(const v1::ModelSpec& model, SpecRules& rules) {
  const std::optional<v1::ModelSpec> preset = FindPreset(model.preset());
  const int64_t hidden = model.hidden();
  if (!preset || preset->heads() != model.heads() || preset->hidden() == hidden) return false;
  const bool pairs = model.arch() == v1::ARCHITECTURE_LLAMA;
  const int64_t granule = model.heads() * (pairs ? 2 : 1);
  if (hidden % granule == 0) return false;
  rules.Add(
      "model.hidden",
      absl::StrCat("hidden ", hidden, " is no multiple of ", pairs ? "twice " : "",
                   OfPreset("heads", model.heads(), model), "; give other heads, or another hidden",
                   NearestText(NearestMultiples(granule, hidden, kMaxHidden))));
  return true;
}

// The rules between hidden, heads and kv_heads, each within its own bounds.
void CheckHeads(const v1::ModelSpec& model, SpecRules& rules) {
  const bool llama = model.arch() == v1::ARCHITECTURE_LLAMA;
  const int64_t hidden = model.hidden();
  const int64_t heads = model.heads();
  if (CheckHiddenOfPreset(model, rules)) return;
  if (hidden % heads != 0) {
    rules.Add("model.heads",
              DividesNotText(absl::StrCat("heads ", heads, " does not divide hidden ", hidden),
                             NearestDivisors(hidden, heads)));
  } else if (llama && hidden % 2 != 0) {
    rules.Add("model.hidden", absl::StrCat("hidden ", hidden,
                                           " is odd, and llama turns pairs of channels; the "
                                           "nearest valid value is ",
                                           hidden + 1));
  } else if (llama && hidden / heads % 2 != 0) {
    rules.Add(
        "model.heads",
        DividesNotText(absl::StrCat("heads ", heads, " of hidden ", hidden, " have ",
                                    hidden / heads, " channels, and llama turns pairs of channels"),
                       NearestDivisors(hidden / 2, heads)));
  } else if (hidden / heads > kMaxHeadChannels) {
    const int64_t least = FewestHeads(hidden, llama ? hidden / 2 : hidden);
    rules.Add("model.heads",
              absl::StrCat("heads ", heads, " of hidden ", hidden, " have ", hidden / heads,
                           " channels, and attention takes at most ", kMaxHeadChannels, "; ",
                           least == 0 ? "no number of heads divides this hidden into such"
                                      : absl::StrCat("the fewest that will do are ", least)));
  }
}

void CheckKvHeads(const v1::ModelSpec& model, SpecRules& rules) {
  const int64_t heads = model.heads();
  const int64_t kv_heads = model.kv_heads();
  if (model.arch() == v1::ARCHITECTURE_GPT2) {
    if (kv_heads == heads) return;
    rules.Add("model.kv_heads", absl::StrCat("gpt2 has as many key and value heads as heads; ",
                                             heads, " would be right"));
    return;
  }
  const std::optional<v1::ModelSpec> preset = FindPreset(model.preset());
  const bool of_preset =
      preset && preset->kv_heads() == kv_heads && preset->heads() != heads && kv_heads > 0;
  if (of_preset && heads % kv_heads != 0) {
    rules.Add(
        "model.heads",
        absl::StrCat("heads ", heads, " is no multiple of ", OfPreset("kv_heads", kv_heads, model),
                     "; give other kv_heads, or other heads",
                     NearestText(NearestMultiples(kv_heads, heads, kMaxHeads))));
  } else if (rules.CheckRange("model.kv_heads", kv_heads, 1, heads) && heads % kv_heads != 0) {
    rules.Add("model.kv_heads",
              DividesNotText(absl::StrCat("kv_heads ", kv_heads, " does not divide heads ", heads),
                             NearestDivisors(heads, kv_heads)));
  }
}

void CheckRopeScaling(const v1::RopeScaling& scaling, SpecRules& rules) {
  rules.CheckReal("model.rope_scaling.factor", scaling.factor(),
                  scaling.factor() >= 1 && scaling.factor() <= kMaxFactor,
                  "1 (no scaling) or above, as in 32");
  const bool low = rules.CheckReal("model.rope_scaling.low_freq_factor", scaling.low_freq_factor(),
                                   scaling.low_freq_factor() > 0, "above 0, as in 1");
  const double least = low ? scaling.low_freq_factor() : 0;
  rules.CheckReal("model.rope_scaling.high_freq_factor", scaling.high_freq_factor(),
                  scaling.high_freq_factor() > least && scaling.high_freq_factor() <= kMaxFactor,
                  low ? absl::StrCat("above low_freq_factor, which is ", scaling.low_freq_factor())
                      : std::string("above low_freq_factor"));
  rules.CheckRange("model.rope_scaling.original_context", scaling.original_context(), 1,
                   kMaxContext);
}

void CheckLlama(const v1::ModelSpec& model, SpecRules& rules) {
  rules.CheckReal("model.norm_eps", model.norm_eps(),
                  model.norm_eps() >= kMinEpsilon && model.norm_eps() <= 1,
                  "from 1e-30 to 1, as in 1e-5");
  rules.CheckReal("model.rope_theta", model.rope_theta(),
                  model.rope_theta() >= 1 && model.rope_theta() <= kMaxTheta,
                  "from 1 to 1e12, as in 10000");
  if (model.has_rope_scaling()) CheckRopeScaling(model.rope_scaling(), rules);
}

void CheckGpt2(const v1::ModelSpec& model, SpecRules& rules) {
  const auto refuse = [&](absl::string_view field) {
    rules.Add(field, "is a setting of llama; leave it out for gpt2");
  };
  if (model.norm_eps() != 0) refuse("model.norm_eps");
  if (model.rope_theta() != 0) refuse("model.rope_theta");
  if (model.has_rope_scaling()) refuse("model.rope_scaling");
}

}  // namespace

void CheckModel(const v1::ModelSpec& model, SpecRules& rules) {
  if (!CheckPreset(model, rules)) return;
  if (!model.from().empty() && !model.preset().empty()) {
    rules.Add("model.preset", "and model.from both say what the model is; leave one out");
    return;
  }
  if (AwaitsShape(model)) return;
  if (NameOf(model.arch()).empty()) {
    rules.Add("model.arch",
              absl::StrCat("must be one of ", absl::StrJoin(ArchitectureNames(), ", ")));
    return;
  }
  bool sizes = rules.CheckGiven("model.layers", model.layers(), kMaxLayers);
  const bool hidden = rules.CheckGiven("model.hidden", model.hidden(), kMaxHidden);
  const bool heads = rules.CheckGiven("model.heads", model.heads(), kMaxHeads);
  sizes &= rules.CheckGiven("model.vocab", model.vocab(), kMaxVocab);
  sizes &= rules.CheckGiven("model.context", model.context(), kMaxContext);
  if (hidden && heads) CheckHeads(model, rules);
  if (heads) CheckKvHeads(model, rules);
  if (hidden) sizes &= rules.CheckRange("model.ffn", model.ffn(), 1, kMaxFfn);
  if (model.arch() == v1::ARCHITECTURE_LLAMA) {
    CheckLlama(model, rules);
  } else {
    CheckGpt2(model, rules);
  }
  if (sizes && hidden && ApproximateParameters(model) > kMaxParameters) {
    rules.Add("model", absl::StrCat("the model has about ", ApproximateParameters(model),
                                    " parameters; at most ", kMaxParameters,
                                    " are supported: lower layers, hidden, ffn or vocab"));
  }
}

}  // namespace sherd
