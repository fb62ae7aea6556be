#include "plan/candidates.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"

namespace sherd {
namespace {

constexpr int64_t kMostOpenMicroBatch = 64;
// Passes over a unit in one step of a rank: a plan of more takes long to make. The time of a step
// grows evenly with its rounds.
constexpr int64_t kMostPasses = int64_t{1} << 11;
constexpr int64_t kLeastRounds = 4;
// Beside the best of every kind.
constexpr size_t kMostListed = 64;
// Shard groups of one degree.
constexpr size_t kMostShardGroups = 4;

std::vector<int64_t> MicroBatchesOf(const v1::TrainSpec& train) {
  if (train.micro_batch() != 0) return {train.micro_batch()};
  std::vector<int64_t> sizes;
  const int64_t most = std::min(kMostOpenMicroBatch, train.global_batch());
  for (int64_t size = 1; size <= most; ++size) {
    if (train.global_batch() % size != 0) continue;
    if (!sizes.empty() && 2 * size < 3 * sizes.back()) continue;
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<v1::Recompute> RecomputesOf(const v1::ParallelSpec& asked) {
  if (asked.recompute() != v1::RECOMPUTE_UNSPECIFIED) return {asked.recompute()};
  return {v1::RECOMPUTE_NONE, v1::RECOMPUTE_BLOCK};
}

// What is open of it is decided by the choice.
bool Contradicts(const StrategyChoice& choice, const v1::ParallelSpec& asked) {
  if (choice.strategy == v1::STRATEGY_ZERO1 &&
      asked.zero1_gradients() != v1::GRADIENT_REDUCTION_UNSPECIFIED) {
    return asked.zero1_gradients() != choice.zero1_gradients;
  }
  if (choice.strategy == v1::STRATEGY_ZERO3 && asked.has_reshard_after_forward()) {
    return asked.reshard_after_forward() != choice.reshard_after_forward;
  }
  return false;
}

// Strategies of a world of `degree` data-parallel ranks, as candidates without the other keys.
std::vector<v1::ParallelSpec> StrategiesOf(const v1::ParallelSpec& asked, int64_t degree) {
  std::vector<v1::ParallelSpec> strategies;
  const auto add = [&](const StrategyChoice& choice, int64_t shard_group) {
    v1::ParallelSpec parallel = asked;
    Choose(choice, parallel);
    parallel.set_shard_group(shard_group);
    strategies.push_back(std::move(parallel));
  };
  for (const StrategyChoice& choice : StrategyChoices()) {
    if (degree == 1 && choice.strategy != v1::STRATEGY_DDP) continue;
    if (!Contradicts(choice, asked)) add(choice, 0);
  }
  const bool reshards = !asked.has_reshard_after_forward() || asked.reshard_after_forward();
  size_t groups = 0;
  for (int64_t group = 2; group < degree && groups < kMostShardGroups; ++group) {
    if (degree % group != 0) continue;
    ++groups;
    add({v1::STRATEGY_HYBRID, v1::GRADIENT_REDUCTION_REDUCE_SCATTER, reshards}, group);
  }
  return strategies;
}

// What rank 0 of a world holds, and how long a step of it takes.
struct Prediction {
  int64_t peak_bytes = 0;
  double step_seconds = 0;
};

// The time of a step of so many full rounds.
double SecondsOf(v1::JobSpec spec, int64_t rounds, int ranks, const CostModel& cost) {
  const int64_t degree = ranks / spec.parallel().tensor();
  spec.mutable_train()->set_global_batch(rounds * degree * spec.train().micro_batch());
  return EstimateStep(BuildRankPlan(spec, 0, ranks), spec, cost).step;
}

Prediction Predict(const v1::JobSpec& spec, int ranks, const CostModel& cost) {
  const int degree = ranks / static_cast<int>(spec.parallel().tensor());
  const StrategyRow& row = *FindStrategy(spec.parallel());
  const MicroBatches split =
      SplitMicroBatches(spec.train().global_batch() / spec.train().micro_batch(), degree,
                        ReplicasOf(row, spec.parallel(), degree));
  const int64_t most = std::max(kLeastRounds, kMostPasses / (spec.model().layers() + 2));
  Prediction prediction;
  if (split.rounds <= most) {
    const RankPlan plan = BuildRankPlan(spec, 0, ranks);
    prediction.peak_bytes = PredictLedger(plan, spec).memory().at("peak").predicted();
    prediction.step_seconds = EstimateStep(plan, spec, cost).step;
    return prediction;
  }
  v1::JobSpec shortened = spec;
  shortened.mutable_train()->set_global_batch(kLeastRounds * degree * spec.train().micro_batch());
  RankPlan plan = BuildRankPlan(shortened, 0, ranks);
  plan.micro_batches = split;
  prediction.peak_bytes = PredictLedger(plan, spec).memory().at("peak").predicted();
  const double half = SecondsOf(spec, most / 2, ranks, cost);
  const double whole = SecondsOf(spec, most, ranks, cost);
  const double round = (whole - half) / static_cast<double>(most - most / 2);
  prediction.step_seconds = whole + static_cast<double>(split.rounds - most) * round;
  return prediction;
}

bool Fits(int64_t peak, int ranks, const MemoryLimits& limits) {
  if (limits.device && peak > *limits.device) return false;
  const int64_t sharing = std::max<int64_t>(1, std::min<int64_t>(limits.workers_per_host, ranks));
  return !limits.host || peak <= *limits.host / sharing;
}

class Lister {
 public:
  Lister(const v1::JobSpec& spec, const CandidateWorld& world, CostOf cost)
      : spec_(spec), world_(world), cost_(cost) {}

  std::vector<v1::Candidate> List() {
    const int64_t asked = spec_.parallel().tensor();
    for (const int64_t tensor : world_.tensor_degrees) {
      if ((asked != 0 && tensor != asked) || world_.ranks % tensor != 0) continue;
      AddOf(tensor);
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const v1::Candidate& a, const v1::Candidate& b) {
                       return std::tuple(!a.fits(), a.predicted_step_seconds(), a.peak_bytes()) <
                              std::tuple(!b.fits(), b.predicted_step_seconds(), b.peak_bytes());
                     });
    return Shortened();
  }

 private:
  void AddOf(int64_t tensor) {
    const int64_t degree = world_.ranks / tensor;
    for (v1::ParallelSpec& parallel : StrategiesOf(spec_.parallel(), degree)) {
      parallel.set_tensor(tensor);
      if (tensor == 1) parallel.set_sequence_parallel(false);
      for (const v1::Recompute recompute : RecomputesOf(spec_.parallel())) {
        parallel.set_recompute(recompute);
        for (const int64_t micro_batch : MicroBatchesOf(spec_.train())) {
          v1::Candidate candidate;
          *candidate.mutable_parallel() = parallel;
          candidate.set_micro_batch(micro_batch);
          Add(std::move(candidate));
        }
      }
    }
  }

  void Add(v1::Candidate candidate) {
    const v1::JobSpec spec = WithCandidate(spec_, candidate);
    if (!ValidateJobSpec(spec).fields().empty()) return;
    const Prediction prediction = Predict(spec, world_.ranks, cost_(spec.parallel()));
    candidate.set_peak_bytes(prediction.peak_bytes);
    candidate.set_predicted_step_seconds(prediction.step_seconds);
    candidate.set_fits(Fits(candidate.peak_bytes(), world_.ranks, world_.limits));
    candidates_.push_back(std::move(candidate));
  }

  std::vector<v1::Candidate> Shortened() const {
    std::vector<v1::Candidate> kept;
    for (const v1::Candidate& candidate : candidates_) {
      const bool known = std::any_of(kept.begin(), kept.end(), [&](const v1::Candidate& better) {
        return SameKind(better, candidate);
      });
      if (!known || kept.size() < kMostListed) kept.push_back(candidate);
    }
    return kept;
  }

  const v1::JobSpec& spec_;
  const CandidateWorld& world_;
  const CostOf cost_;
  std::vector<v1::Candidate> candidates_;
};

}  // namespace

v1::JobSpec WithCandidate(v1::JobSpec spec, const v1::Candidate& candidate) {
  *spec.mutable_parallel() = candidate.parallel();
  spec.mutable_train()->set_micro_batch(candidate.micro_batch());
  return NormalizeJobSpec(std::move(spec));
}

v1::Candidate AnyCandidate(const v1::JobSpec& spec) {
  v1::Candidate candidate;
  *candidate.mutable_parallel() = spec.parallel();
  candidate.mutable_parallel()->set_strategy(v1::STRATEGY_DDP);
  if (spec.parallel().tensor() == 0) {
    candidate.mutable_parallel()->set_tensor(1);
    candidate.mutable_parallel()->set_sequence_parallel(false);
  }
  candidate.set_micro_batch(spec.train().micro_batch() != 0 ? spec.train().micro_batch() : 1);
  return candidate;
}

std::vector<v1::Candidate> ListCandidates(const v1::JobSpec& spec, const CandidateWorld& world,
                                          CostOf cost) {
  return Lister(spec, world, cost).List();
}

bool SameKind(const v1::Candidate& a, const v1::Candidate& b) {
  const v1::ParallelSpec& one = a.parallel();
  const v1::ParallelSpec& other = b.parallel();
  return one.strategy() == other.strategy() && one.zero1_gradients() == other.zero1_gradients() &&
         one.reshard_after_forward() == other.reshard_after_forward() &&
         one.tensor() == other.tensor() && one.shard_group() == other.shard_group();
}

bool SameLayout(const v1::Candidate& a, const v1::Candidate& b) {
  return SameKind(a, b) && a.parallel().recompute() == b.parallel().recompute() &&
         a.micro_batch() == b.micro_batch();
}

std::vector<size_t> Shortlist(absl::Span<const v1::Candidate> candidates, size_t most) {
  std::vector<size_t> chosen;
  const auto add = [&](auto admits) {
    for (size_t at = 0; at < candidates.size() && chosen.size() < most; ++at) {
      if (candidates[at].fits() && admits(at)) chosen.push_back(at);
    }
  };
  add([&](size_t at) {
    return std::none_of(chosen.begin(), chosen.end(),
                        [&](size_t other) { return SameKind(candidates[other], candidates[at]); });
  });
  add([&](size_t at) { return std::find(chosen.begin(), chosen.end(), at) == chosen.end(); });
  return chosen;
}

std::vector<size_t> Neighbours(absl::Span<const v1::Candidate> candidates, size_t of) {
  const v1::Candidate& centre = candidates[of];
  std::optional<size_t> below;
  std::optional<size_t> above;
  for (size_t at = 0; at < candidates.size(); ++at) {
    const v1::Candidate& other = candidates[at];
    if (!other.fits() || !SameKind(other, centre)) continue;
    if (other.parallel().recompute() != centre.parallel().recompute()) continue;
    const int64_t size = other.micro_batch();
    if (size < centre.micro_batch() && (!below || size > candidates[*below].micro_batch())) {
      below = at;
    }
    if (size > centre.micro_batch() && (!above || size < candidates[*above].micro_batch())) {
      above = at;
    }
  }
  std::vector<size_t> neighbours;
  if (below) neighbours.push_back(*below);
  if (above) neighbours.push_back(*above);
  return neighbours;
}

std::string NameOf(const v1::Candidate& candidate) {
  const v1::ParallelSpec& parallel = candidate.parallel();
  std::string name = NameOf(ChoiceOf(parallel));
  if (parallel.shard_group() > 0) absl::StrAppend(&name, " ", parallel.shard_group());
  if (parallel.tensor() > 1) absl::StrAppend(&name, ", tensor ", parallel.tensor());
  if (parallel.recompute() == v1::RECOMPUTE_BLOCK) absl::StrAppend(&name, ", recompute block");
  absl::StrAppend(&name, ", micro_batch ", candidate.micro_batch());
  return name;
}

}  // namespace sherd
