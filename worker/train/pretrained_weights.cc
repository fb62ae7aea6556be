#include "worker/train/pretrained_weights.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/training_state.h"
#include "worker/pretrained/pretrained_folder.h"
#include "worker/train/vote.h"

namespace sherd {
namespace {

absl::Status Load(const PretrainedSource& source, const RankPlan& plan, RankMemory& memory) {
  SHERD_ASSIGN_OR_RETURN(const PretrainedFolder folder,
                         PretrainedFolder::Open(source.data_root, source.model.from()));
  // It is looked at when the job is submitted; what is there now may be another.
  if (folder.shape() != plan.shape) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.path(), " holds a model of another shape than when the job was submitted"));
  }
  std::vector<TensorTarget> targets;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory.unit(static_cast<int>(index));
    std::fill(unit.state.master, unit.state.master + unit.owned.size(), 0.0f);
    AppendWeightTargets(plan.inventory.units[index], unit.owned, unit.state.master, targets);
  }
  return folder.Load(targets, source.threads, source.stop).status();
}

}  // namespace

absl::Status LoadPretrained(const PretrainedSource& source, const RankPlan& plan,
                            RankMemory& memory, RankMesh& mesh) {
  return Vote(mesh, Load(source, plan, memory));
}

}  // namespace sherd
