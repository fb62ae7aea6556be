// What a coordinator gives a worker to do. An assignment that is taken can be planned, and the rest
// of what is looked at before anything is formed ends in words.

#include <cstdint>

#include "plan/assignment_rules.h"
#include "plan/holdings.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "tests/fuzz/fuzz.h"
#include "worker/train/rank_groups.h"

namespace {

// As in job_spec_fuzz.cc.
constexpr int kMostRanks = 64;
constexpr int64_t kMostLayers = 64;
constexpr int64_t kMostPasses = 1 << 14;
// A plan is made of each.
constexpr int kMostOthers = 4;

// A refusal says what is wrong.
bool Taken(const absl::Status& status) {
  FUZZ_CHECK(status.ok() || !status.message().empty());
  return status.ok();
}

void LookAtGroup(const sherd::v1::Assignment& assignment, const sherd::RankGroup& group) {
  if (group.ranks.empty()) return;
  FUZZ_CHECK(group.ranks[static_cast<size_t>(group.index)] == assignment.rank());
  const auto addresses = sherd::AddressesOf(assignment, group);
  if (Taken(addresses.status())) FUZZ_CHECK(addresses->size() == group.ranks.size());
}

// What it goes on with is cut as the rank's state is, by whoever held it.
void LookAtVersion(const sherd::v1::Assignment& assignment) {
  const sherd::v1::RestorePlan& restore = assignment.restore();
  if (!assignment.has_restore() || !restore.checkpoint().empty()) return;
  if (restore.world() > kMostRanks || restore.sources_size() > kMostOthers) return;
  sherd::v1::JobSpec held = assignment.spec();
  if (restore.has_parallel()) *held.mutable_parallel() = restore.parallel();
  for (const int owner : sherd::SourceParts(held.parallel(), assignment.spec(), restore.world(),
                                            assignment.world(), assignment.rank())) {
    FUZZ_CHECK(owner >= 0 && owner < restore.world());
  }
  for (const sherd::v1::RestoreSource& source : restore.sources()) {
    sherd::BuildRankPlan(held, source.owner(), restore.world());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sherd::v1::Assignment assignment;
  if (!assignment.ParseFromArray(data, static_cast<int>(size))) return 0;
  // With the defaults filled in, as a coordinator sends it, and without.
  Taken(sherd::CheckAssignment(assignment));
  *assignment.mutable_spec() = sherd::NormalizeJobSpec(assignment.spec());
  if (!Taken(sherd::CheckAssignment(assignment))) return 0;
  // A probe lays nothing out.
  if (assignment.has_trial() && assignment.trial().steps() == 0) return 0;
  const sherd::v1::JobSpec& spec = assignment.spec();
  const int64_t micro_batches = spec.train().global_batch() / spec.train().micro_batch();
  if (assignment.world() > kMostRanks || spec.model().layers() > kMostLayers ||
      micro_batches * spec.model().layers() > kMostPasses) {
    return 0;
  }
  const sherd::RankPlan plan = sherd::BuildRankPlan(spec, assignment.rank(), assignment.world());
  LookAtVersion(assignment);
  Taken(sherd::CheckShards(assignment, plan));
  const bool stores = Taken(sherd::CheckStoredFor(assignment));
  const auto groups = sherd::FindGroups(assignment, plan);
  if (!Taken(groups.status())) return 0;
  if (stores && assignment.stored_for_size() <= kMostOthers) {
    const sherd::v1::RankLedger ledger = sherd::PredictLedger(assignment, plan, 1);
    for (const auto& [pool, line] : ledger.memory()) FUZZ_CHECK(line.predicted() >= 0);
  }
  for (const sherd::RankGroup* group :
       {&groups->data, &groups->sharers, &groups->replicas, &groups->tensor, &groups->kv_copies}) {
    LookAtGroup(assignment, *group);
  }
  return 0;
}
