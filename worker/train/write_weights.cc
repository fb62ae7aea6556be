#include "worker/train/write_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/roots.h"

namespace sherd {
namespace {

// One rank's word in a vote: its result, or why it failed.
constexpr size_t kWordBytes = 1024;

constexpr char kFailedRank[] = "sherd/failed-rank";

// Every rank's text when all succeeded; else the first failure, the same on every rank.
absl::StatusOr<std::vector<std::string>> Vote(RankMesh& mesh,
                                              const absl::StatusOr<std::string>& mine) {
  std::vector<char> word(kWordBytes, '\0');
  word[0] = static_cast<char>(mine.status().code());
  const std::string text = mine.ok() ? *mine : std::string(mine.status().message());
  std::memcpy(word.data() + 1, text.data(), std::min(text.size(), kWordBytes - 2));
  std::vector<char> words(kWordBytes * static_cast<size_t>(mesh.size()));
  SHERD_RETURN_IF_ERROR(mesh.Exchange(word.data(), words.data(), static_cast<int64_t>(kWordBytes)));
  std::vector<std::string> texts;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const char* const said = words.data() + kWordBytes * static_cast<size_t>(rank);
    const auto code = static_cast<absl::StatusCode>(said[0]);
    if (code != absl::StatusCode::kOk) {
      // Whoever ends first aborts the communicator: not before all have heard the vote.
      mesh.Barrier().IgnoreError();
      absl::Status failed(code, absl::StrCat("rank ", rank, ": ", said + 1));
      failed.SetPayload(kFailedRank, absl::Cord(absl::StrCat(rank)));
      return failed;
    }
    texts.emplace_back(said + 1);
  }
  return texts;
}

absl::StatusOr<std::string> Outcome(const absl::Status& status) {
  if (!status.ok()) return status;
  return std::string();
}

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
// update.
absl::Status CheckFinite(const RankPlan& plan, Ops& ops, RankMemory& memory) {
  ExactSum squares;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory.unit(static_cast<int>(index));
    ops.AddSquares(unit.state.master, DType::kF32, unit.owned.size(), squares);
  }
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

int FailedRankOf(const absl::Status& error) {
  const absl::optional<absl::Cord> said = error.GetPayload(kFailedRank);
  int rank = -1;
  return said.has_value() && absl::SimpleAtoi(std::string(*said), &rank) ? rank : -1;
}

absl::StatusOr<std::string> WriteWeights(const v1::Assignment& assignment, const RankPlan& plan,
                                         const std::string& output_root, int64_t step, Ops& ops,
                                         RankMemory& memory, RankMesh& mesh) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const bool leads = mesh.rank() == 0;
  const CheckpointInfo info = InfoOf(assignment, plan, step);
  const absl::StatusOr<std::string> resolved =
      ResolveOutputDirectory(output_root, assignment.spec().checkpoint().dir());
  absl::Status prepared = resolved.status();
  if (prepared.ok()) prepared = CheckFinite(plan, ops, memory);
  if (prepared.ok() && leads) prepared = PrepareStaging(*files, *resolved, info);
  // Whatever goes wrong from here on, also a peer's death, nothing half-written stays.
  absl::Cleanup discard = [&] {
    if (leads && resolved.ok()) DiscardStaging(*files, *resolved, info);
  };
  SHERD_RETURN_IF_ERROR(Vote(mesh, Outcome(prepared)).status());

  const std::vector<TensorRange> ranges = RangesOf(plan, memory);
  const absl::StatusOr<ShardFileInfo> shard =
      WriteShard(*files, StagingDirectory(*resolved, info), mesh.rank(), mesh.size(), ranges);
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> written,
                         Vote(mesh, shard.ok() ? absl::StatusOr<std::string>(shard->Serialize())
                                               : absl::StatusOr<std::string>(shard.status())));

  const absl::Status published =
      leads ? Publish(*files, *resolved, info, plan, written) : absl::OkStatus();
  SHERD_RETURN_IF_ERROR(Vote(mesh, Outcome(published)).status());
  std::move(discard).Cancel();
  return *resolved;
}

}  // namespace sherd
