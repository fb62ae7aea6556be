// Specifications as messages: what any client may submit. One that is valid can be planned, one
// that leaves its layout open in every layout that may be chosen for it.

#include "plan/candidates.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "plan/world_layout.h"
#include "sherd/v1/job.pb.h"
#include "tests/fuzz/fuzz.h"

namespace {

// Layouts of large worlds are computed elsewhere (tests/plan/world_layout_test.cc).
constexpr int64_t kMostRanks = 64;
constexpr int64_t kMostLayers = 64;
// Passes over a unit in a step: a plan names each.
constexpr int64_t kMostPasses = 1 << 14;
// Some dozens of layouts are computed of these.
constexpr int64_t kMostOpenRanks = 8;
constexpr int64_t kMostOpenLayers = 6;

void Plan(const sherd::v1::JobSpec& spec, int ranks) {
  const sherd::RankPlan plan = sherd::BuildRankPlan(spec, ranks - 1, ranks);
  const sherd::v1::RankLedger ledger = sherd::PredictLedger(plan, spec);
  for (const auto& [pool, line] : ledger.memory()) {
    FUZZ_CHECK(line.predicted() >= 0);
  }
}

sherd::CostModel SomeCost(const sherd::v1::ParallelSpec& parallel) {
  sherd::CostModel cost;
  cost.flops = 1e11;
  cost.bandwidth = cost.tensor_bandwidth = 1e9;
  return cost;
}

void PlanInEveryLayout(const sherd::v1::JobSpec& spec, int ranks) {
  const sherd::CandidateWorld world = {.ranks = ranks, .tensor_degrees = {1, 2, 3, 4}};
  for (const sherd::v1::Candidate& candidate : sherd::ListCandidates(spec, world, SomeCost)) {
    const sherd::v1::JobSpec chosen = sherd::WithCandidate(spec, candidate);
    FUZZ_CHECK(sherd::ValidateJobSpec(chosen).fields_size() == 0);
    FUZZ_CHECK(candidate.predicted_step_seconds() > 0 && candidate.peak_bytes() > 0);
    Plan(chosen, ranks);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sherd::v1::JobSpec spec;
  if (!spec.ParseFromArray(data, static_cast<int>(size))) return 0;
  const sherd::v1::JobSpec whole = sherd::NormalizeJobSpec(spec);
  FUZZ_CHECK(sherd::NormalizeJobSpec(whole).SerializeAsString() == whole.SerializeAsString());
  const sherd::v1::InvalidFields invalid = sherd::ValidateJobSpec(whole);
  for (const sherd::v1::InvalidField& field : invalid.fields()) {
    FUZZ_CHECK(!field.field().empty() && !field.description().empty());
  }
  if (invalid.fields_size() > 0) return 0;
  const int64_t world = whole.elastic().min_workers();
  if (world > kMostRanks || whole.model().layers() > kMostLayers) return 0;
  const int ranks = static_cast<int>(world);
  if (ranks % sherd::WorldGranuleOf(whole.parallel()) != 0) return 0;
  if (whole.parallel().strategy() != sherd::v1::STRATEGY_AUTO) {
    const int64_t micro_batches = whole.train().global_batch() / whole.train().micro_batch();
    if (micro_batches * whole.model().layers() > kMostPasses) return 0;
    Plan(whole, ranks);
  } else if (world <= kMostOpenRanks && whole.model().layers() <= kMostOpenLayers) {
    PlanInEveryLayout(whole, ranks);
  }
  return 0;
}
