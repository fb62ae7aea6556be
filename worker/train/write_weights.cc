#include "worker/train/write_weights.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/save.h"
#include "worker/data/roots.h"
#include "worker/train/rank_state.h"
#include "worker/train/vote.h"

namespace sherd {
namespace {

// What the rank writes: the elements that it counts, so that every element is written once also
// where replicas and other members of its tensor-parallel group hold it.
std::vector<TensorRange> RangesOf(const RankPlan& plan, RankMemory& memory) {
  std::vector<TensorRange> ranges;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory.unit(static_cast<int>(index));
    for (const ElementRange& counted : unit.counted) {
      AppendRanges(plan.inventory.units[index], counted,
                   unit.state.master + (counted.begin - unit.owned.begin), ranges);
    }
  }
  return ranges;
}

CheckpointInfo InfoOf(const v1::Assignment& assignment, const RankPlan& plan, int64_t step) {
  CheckpointInfo info;
  info.job_id = assignment.job_id();
  info.step = step;
  info.epoch = assignment.epoch();
  info.model = plan.shape;
  info.tokenizer = assignment.spec().data().tokenizer();
  return info;
}

// F15: weights that are no numbers are not published. Loss and norm are those before the last
// update. Every rank looks at what it writes.
absl::Status CheckFinite(const RankPlan& plan, Ops& ops, Device& device, RankMemory& memory) {
  ExactSum squares;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory.unit(static_cast<int>(index));
    ReadMasters(memory, static_cast<int>(index),
                [&](int64_t begin, int64_t end, const float* masters) {
                  for (const ElementRange& counted : unit.counted) {
                    const int64_t from = std::max(counted.begin - unit.owned.begin, begin);
                    const int64_t until = std::min(counted.end - unit.owned.begin, end);
                    if (from >= until) continue;
                    ops.AddSquares(masters + (from - begin), DType::kF32, until - from, squares);
                  }
                });
  }
  // A device that fails meanwhile has looked at nothing.
  SHERD_RETURN_IF_ERROR(device.status());
  if (squares.nonfinite == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the last update made ", squares.nonfinite,
                                          " weights infinite or no number; lower "
                                          "train.optimizer.lr"));
}

absl::Status Publish(FileSystem& files, const std::string& directory, const CheckpointInfo& info,
                     const RankPlan& plan, const std::vector<std::string>& written) {
  std::vector<ShardFileInfo> shards;
  for (const std::string& text : written) {
    SHERD_ASSIGN_OR_RETURN(ShardFileInfo shard, ShardFileInfo::Parse(text));
    shards.push_back(std::move(shard));
  }
  return PublishCheckpoint(files, directory, info, WeightsOf(plan.inventory), std::move(shards));
}

}  // namespace

absl::Status WriteWeights(FileSystem& files, FileSystem& real_files,
                          const v1::Assignment& assignment, const RankPlan& plan,
                          const std::string& root, int64_t step, Ops& ops, Device& device,
                          RankMemory& memory, RankMesh& mesh) {
  const bool leads = mesh.rank() == 0;
  const CheckpointInfo info = InfoOf(assignment, plan, step);
  const std::string directory = FinalDirectory(root);
  const bool makes_root = absl::IsNotFound(files.List(root).status());
  absl::Status prepared = CheckFinite(plan, ops, device, memory);
  if (prepared.ok() && leads) prepared = PrepareStaging(files, directory, info);
  // Whatever goes wrong from here on, also a peer's death, nothing half-written stays.
  absl::Cleanup discard = [&] {
    if (!leads) return;
    DiscardStaging(real_files, directory, info);
    std::error_code not_empty;
    if (makes_root) std::filesystem::remove(root, not_empty);
  };
  SHERD_RETURN_IF_ERROR(Vote(mesh, prepared));

  const std::vector<TensorRange> ranges = RangesOf(plan, memory);
  const absl::StatusOr<ShardFileInfo> shard =
      WriteShard(files, StagingDirectory(directory, info), mesh.rank(), mesh.size(), ranges);
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> written,
                         Vote(mesh, shard.ok() ? absl::StatusOr<std::string>(shard->Serialize())
                                               : absl::StatusOr<std::string>(shard.status())));

  const absl::Status published =
      leads ? Publish(files, directory, info, plan, written) : absl::OkStatus();
  SHERD_RETURN_IF_ERROR(Vote(mesh, published));
  std::move(discard).Cancel();
  return absl::OkStatus();
}

}  // namespace sherd
