// Specifications as messages: what any client may submit. One that is valid can be planned.

#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "plan/world_layout.h"
#include "sherd/v1/job.pb.h"
#include "tests/fuzz/fuzz.h"

namespace {

// Layouts of large worlds are computed elsewhere (tests/plan/world_layout_test.cc).
constexpr int64_t kMostRanks = 64;
constexpr int64_t kMostLayers = 64;

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
  const sherd::RankPlan plan = sherd::BuildRankPlan(whole, ranks - 1, ranks);
  const sherd::v1::RankLedger ledger = sherd::PredictLedger(plan, whole);
  for (const auto& [pool, line] : ledger.memory()) {
    FUZZ_CHECK(line.predicted() >= 0);
  }
  return 0;
}
