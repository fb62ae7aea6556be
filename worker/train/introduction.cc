#include "worker/train/introduction.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/counted.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

absl::string_view MediumText(Medium medium) {
  switch (medium) {
    case Medium::kTcp:
      return " in arenas, shards over TCP";
    case Medium::kNccl:
      return " in arenas, shards over NCCL";
    case Medium::kSharedMemory:
      break;
  }
  return " of shared memory";
}

bool UsesNccl(const GroupMedia& media) {
  for (const Medium medium : {media.sharers, media.replicas, media.tensor, media.kv_copies}) {
    if (medium == Medium::kNccl) return true;
  }
  return false;
}

}  // namespace

std::string Introduction(const v1::Assignment& assignment, const RankPlan& plan,
                         const RankMesh& mesh, int threads) {
  const v1::JobSpec& spec = assignment.spec();
  return absl::StrCat(
      Counted(plan.inventory.elements, "parameter"), ", ",
      std::string(NameOf(spec.parallel().strategy())), " over ", Counted(mesh.data_size(), "rank"),
      plan.AddsReplicas() ? absl::StrCat(" in shard groups of ", mesh.sharers().size()) : "",
      mesh.tensor() == nullptr ? "" : absl::StrCat(" × tensor ", mesh.tensor()->size()),
      plan.part().place.sequence ? " with sequence parallelism" : "", ", ",
      std::string(NameOf(spec.precision().compute())), "; ",
      Counted(plan.micro_batches.count, "micro-batch", "micro-batches"), " a step in ",
      Counted(plan.micro_batches.rounds, "round"), "; ", Counted(mesh.arena_bytes(), "byte"),
      MediumText(MediaOf(assignment).sharers), ", ", Counted(threads, "thread"),
      plan.micro_batches.SumsInTreeOrder()
          ? ""
          : "; gradients are summed in another order than on one worker, so "
            "figures differ from its by rounding (zero2 and zero3 never do)",
      IsReproducible(spec.precision()) || !UsesNccl(MediaOf(assignment))
          ? ""
          : "; NCCL sums in an order of its own, so figures may differ by rounding between runs");
}

}  // namespace sherd
