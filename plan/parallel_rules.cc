#include "plan/parallel_rules.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/job_spec.h"
#include "plan/model_rules.h"
#include "plan/strategy.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

constexpr int64_t kMaxPrefetch = 16;
constexpr int64_t kMaxBucketMb = int64_t{1} << 20;

// An enum value as text: also one that a newer client knows.
template <typename Enum>
std::string Spell(Enum value) {
  const absl::string_view name = NameOf(value);
  return name.empty() ? absl::StrCat(static_cast<int>(value)) : std::string(name);
}

// Chosen when the job starts, with the other keys that its file leaves open.
bool IsAuto(const v1::ParallelSpec& parallel) { return parallel.strategy() == v1::STRATEGY_AUTO; }

void CheckStrategy(const v1::ParallelSpec& parallel, SpecRules& rules) {
  std::vector<v1::Strategy> supported = SupportedStrategies();
  supported.push_back(v1::STRATEGY_AUTO);
  if (std::find(supported.begin(), supported.end(), parallel.strategy()) != supported.end()) return;
  const std::string names = absl::StrJoin(
      supported, ", ",
      [](std::string* out, v1::Strategy strategy) { absl::StrAppend(out, NameOf(strategy)); });
  rules.Add("parallel.strategy",
            absl::StrCat("'", Spell(parallel.strategy()),
                         "' is not supported by this version; those that are: ", names));
}

void CheckShardGroup(const v1::ParallelSpec& parallel, SpecRules& rules) {
  const bool hybrid = parallel.strategy() == v1::STRATEGY_HYBRID;
  if (hybrid && parallel.shard_group() == 0) {
    rules.Add("parallel.shard_group",
              "is missing: how many workers share one copy under strategy hybrid? 1 or more");
  } else if (hybrid) {
    rules.CheckRange("parallel.shard_group", parallel.shard_group(), 1, kMaxWorkers);
  } else if (parallel.shard_group() != 0) {
    rules.Add("parallel.shard_group",
              absl::StrCat(parallel.shard_group(), " is for parallel.strategy: hybrid; '",
                           Spell(parallel.strategy()), "' takes 0"));
  }
}

// What of a model does not fit a tensor-parallel degree: "8 heads"; "" when all of it does.
std::string Misfit(const v1::ModelSpec& model, int64_t tensor) {
  const int64_t kv_heads = model.kv_heads();
  if (model.heads() % tensor != 0) return absl::StrCat(model.heads(), " heads");
  if (model.ffn() % tensor != 0) return absl::StrCat("ffn ", model.ffn());
  // Members share a head, or have whole ones each.
  if (kv_heads % tensor != 0 && tensor % kv_heads != 0) return absl::StrCat(kv_heads, " kv_heads");
  return "";
}

// The nearest degrees around `tensor` that fit the model; 1 always does.
std::vector<int64_t> NearestDegrees(const v1::ModelSpec& model, int64_t tensor) {
  std::vector<int64_t> nearest;
  int64_t below = std::min(tensor, model.heads());
  while (!Misfit(model, below).empty()) --below;
  nearest.push_back(below);
  const int64_t most = std::min(model.heads(), kMaxWorkers);
  for (int64_t above = tensor + 1; above <= most; ++above) {
    if (!Misfit(model, above).empty()) continue;
    nearest.push_back(above);
    break;
  }
  return nearest;
}

// Whether the degree says something about the model.
bool CheckTensor(const v1::JobSpec& spec, SpecRules& rules) {
  const v1::ModelSpec& model = spec.model();
  const int64_t tensor = spec.parallel().tensor();
  if (IsAuto(spec.parallel()) && tensor == 0) return true;
  if (!rules.CheckRange("parallel.tensor", tensor, 1, kMaxWorkers)) return false;
  // Of impossible sizes enough was said.
  if (model.heads() < 1 || model.ffn() < 1 || model.kv_heads() < 1) return false;
  const std::string misfit = Misfit(model, tensor);
  if (misfit.empty()) return true;
  rules.Add("parallel.tensor", absl::StrCat("tensor ", tensor, " does not fit ", misfit,
                                            NearestThatDoText(NearestDegrees(model, tensor))));
  return false;
}

void CheckSequenceParallel(const v1::JobSpec& spec, SpecRules& rules) {
  const int64_t tensor = spec.parallel().tensor();
  const v1::TrainSpec& train = spec.train();
  if (!spec.parallel().sequence_parallel()) return;
  // Of what is chosen later each choice is looked at.
  if (IsAuto(spec.parallel()) && (tensor == 0 || train.micro_batch() == 0)) return;
  if (tensor == 1) {
    const std::vector<int64_t> degrees = NearestDegrees(spec.model(), 1);
    rules.Add(
        "parallel.sequence_parallel",
        absl::StrCat("cuts what a tensor-parallel group shares, and parallel.tensor is 1; ",
                     degrees.size() > 1 ? absl::StrCat("set that to ", degrees.back(), " or ") : "",
                     "leave it out"));
    return;
  }
  int64_t tokens = 0;
  // Of impossible batches enough was said.
  if (train.micro_batch() < 1 || train.seq_len() < 1 || train.seq_len() > kMaxContext ||
      __builtin_mul_overflow(train.micro_batch(), train.seq_len(), &tokens)) {
    return;
  }
  if (tokens % tensor == 0) return;
  const int64_t granule = tensor / std::gcd(tensor, train.micro_batch());
  const std::vector<int64_t> lengths =
      NearestMultiples(granule, train.seq_len(), spec.model().context());
  rules.Add("parallel.sequence_parallel",
            absl::StrCat("tensor ", tensor, " does not divide the ", tokens,
                         " tokens of a micro-batch, micro_batch ", train.micro_batch(),
                         " × seq_len ", train.seq_len(),
                         lengths.empty() ? "; a micro_batch that it divides would be right"
                                         : absl::StrCat("; the nearest seq_len",
                                                        lengths.size() == 1 ? " that does is "
                                                                            : "s that do are ",
                                                        absl::StrJoin(lengths, " and "))));
}

void CheckSettings(const v1::ParallelSpec& parallel, SpecRules& rules) {
  rules.CheckRange("parallel.prefetch", parallel.prefetch(), 0, kMaxPrefetch);
  const bool open = IsAuto(parallel);
  const bool flow_open = open && parallel.zero1_gradients() == v1::GRADIENT_REDUCTION_UNSPECIFIED;
  if (NameOf(parallel.zero1_gradients()).empty() && !flow_open) {
    rules.Add("parallel.zero1_gradients",
              absl::StrCat("must be one of ", absl::StrJoin(GradientReductionNames(), ", ")));
  }
  const bool recompute_open = open && parallel.recompute() == v1::RECOMPUTE_UNSPECIFIED;
  if (NameOf(parallel.recompute()).empty() && !recompute_open) {
    rules.Add("parallel.recompute",
              absl::StrCat("must be one of ", absl::StrJoin(RecomputeNames(), ", ")));
  }
  if (NameOf(parallel.offload()).empty()) {
    rules.Add("parallel.offload",
              absl::StrCat("must be one of ", absl::StrJoin(OffloadNames(), ", ")));
  }
  rules.CheckRange("parallel.bucket_mb", parallel.bucket_mb(), 0, kMaxBucketMb);
}

// A world is a multiple of what it is cut into, and the bounds must leave one.
void CheckWorlds(const v1::JobSpec& spec, SpecRules& rules) {
  const v1::ParallelSpec& parallel = spec.parallel();
  if (parallel.shard_group() > kMaxWorkers) return;
  const int64_t granule = WorldGranuleOf(parallel);
  if (granule == 1) return;
  if (granule > kMaxWorkers) {
    rules.Add("parallel.shard_group",
              absl::StrCat(GranuleText(parallel), " is more than ", kMaxWorkers,
                           " workers; the nearest valid value is ",
                           kMaxWorkers / std::max<int64_t>(1, parallel.tensor())));
    return;
  }
  const int64_t fewest = spec.elastic().min_workers();
  const int64_t most = spec.elastic().max_workers();
  if (fewest < 1 || fewest > kMaxWorkers || (most != 0 && most < fewest)) return;
  const int64_t least = (fewest + granule - 1) / granule * granule;
  if (least <= (most == 0 ? kMaxWorkers : most)) return;
  if (fewest == most) {
    rules.Add("elastic.max_workers",
              absl::StrCat(most, " workers are no multiple of ", granule, " (",
                           GranuleText(parallel), ")", NearestText(NearestWorlds(granule, most))));
    return;
  }
  rules.Add(most == 0 ? "elastic.min_workers" : "elastic.max_workers",
            absl::StrCat(most == 0 ? fewest : most, " leaves no world: at least ", fewest,
                         " workers, a multiple of ", granule, " (", GranuleText(parallel),
                         "); the nearest valid value is ",
                         most == 0 ? NearestWorlds(granule, fewest).front() : least));
}

}  // namespace

std::vector<int64_t> NearestWorlds(int64_t granule, int64_t workers) {
  return NearestMultiples(granule, workers, kMaxWorkers);
}

std::string GranuleText(const v1::ParallelSpec& parallel) {
  const std::string group = absl::StrCat("shard_group ", parallel.shard_group());
  if (parallel.tensor() <= 1) return group;
  return absl::StrCat("tensor ", parallel.tensor(),
                      parallel.shard_group() > 0 ? absl::StrCat(" × ", group) : "");
}

void CheckParallel(const v1::JobSpec& spec, SpecRules& rules) {
  CheckStrategy(spec.parallel(), rules);
  const bool tensor = CheckTensor(spec, rules);
  if (tensor) CheckSequenceParallel(spec, rules);
  CheckShardGroup(spec.parallel(), rules);
  CheckSettings(spec.parallel(), rules);
  if (tensor) CheckWorlds(spec, rules);
}

}  // namespace sherd
