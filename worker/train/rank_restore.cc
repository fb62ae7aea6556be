// What a rank's training goes on from.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/save.h"
#include "worker/data/roots.h"
#include "worker/train/lineage.h"
#include "worker/train/pretrained_weights.h"
#include "worker/train/rank_job.h"
#include "worker/train/rank_state.h"
#include "worker/train/restore.h"
#include "worker/train/restore_checkpoint.h"

namespace sherd {

absl::Status RankJob::Restore(const OwnHoldings& own, const FormationAbort& abort,
                              const CopyWatch& watch) {
  holdings_ = &own.store;
  SHERD_RETURN_IF_ERROR(device_.status());
  if (!RestoresVersion(assignment_)) return RestoreFromFiles(abort, watch);
  const int64_t step = assignment_.restore().step();
  SHERD_ASSIGN_OR_RETURN(const VersionFigures figures,
                         RestoreVersion(assignment_, plan_, own, abort, watch, memory_, *segment_));
  skipped_windows_ = figures.skipped_windows;
  loss_ = figures.loss;
  SHERD_RETURN_IF_ERROR(GoOnAfter(step, watch));
  return PrepareSaving(std::nullopt);
}

absl::Status RankJob::RestoreFromFiles(const FormationAbort& abort, const CopyWatch& watch) {
  const std::string& resume = spec_.checkpoint().resume();
  const bool resumes = IsLaterEpoch(assignment_) || assignment_.has_restore() ||
                       (!resume.empty() && resume != "none");
  std::optional<RestoredCheckpoint> restored;
  if (resumes) {
    CheckpointSource source{output_.files, "", output_.root, data_.corpus_tokens(), watch};
    SHERD_ASSIGN_OR_RETURN(source.root, Directory());
    SHERD_ASSIGN_OR_RETURN(
        restored, RestoreCheckpoint(assignment_, plan_, source, memory_, mesh_, observer_));
    if (!restored && leads()) {
      observer_.OnLog(absl::StrCat("there is no checkpoint in ", source.root,
                                   " to go on from: training starts from the beginning"));
    }
  }
  if (restored) {
    skipped_windows_ = restored->info.training->skipped_windows;
    loss_ = restored->info.training->loss;
    SHERD_RETURN_IF_ERROR(GoOnAfter(restored->info.step, watch));
  } else if (!spec_.model().from().empty()) {
    SHERD_RETURN_IF_ERROR(StartFromFolder(abort));
  }
  return PrepareSaving(restored);
}

absl::Status RankJob::StartFromFolder(const FormationAbort& abort) {
  SHERD_RETURN_IF_ERROR(LoadPretrained(
      {output_.data_root, spec_.model(), threads_, [&abort] { return abort.aborted(); }}, plan_,
      memory_, mesh_));
  if (leads()) {
    observer_.OnLog(absl::StrCat("starts from the weights in ", spec_.model().from()));
  }
  return StoreState();
}

absl::Status RankJob::StoreState() {
  for (size_t unit = 0; unit < plan_.inventory.units.size(); ++unit) {
    SendState(memory_.unit(static_cast<int>(unit)), device_);
    StoreParameters(memory_, static_cast<int>(unit), *ops_);
  }
  executor_.GatherWholeParameters();
  return executor_.Settle();
}

absl::Status RankJob::GoOnAfter(int64_t step, const CopyWatch& watch) {
  SHERD_RETURN_IF_ERROR(StoreState());
  SHERD_RETURN_IF_ERROR(commits_.Restored(step, {skipped_windows_, loss_}, watch));
  step_ = step;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RankJob::Directory() const {
  return ResolveOutputDirectory(output_.root, spec_.checkpoint().dir());
}

absl::Status RankJob::PrepareSaving(const std::optional<RestoredCheckpoint>& restored) {
  if (!saves()) return absl::OkStatus();
  CheckpointPlace place;
  place.corpus_tokens = data_.corpus_tokens();
  SHERD_ASSIGN_OR_RETURN(place.root, Directory());
  if (leads()) {
    // No rank saves anything before this one has come to its first exchange.
    absl::Status ready;
    if (!IsLaterEpoch(assignment_)) ready = RemoveAbandoned(output_.files, place.root);
    place.lineage = ChooseLineage(output_.files, place.root, assignment_, restored);
    ready.Update(RememberLineage(output_.files, place.root, assignment_.job_id(), place.lineage));
    if (!ready.ok()) {
      Warn("checkpoint", -1,
           absl::StrCat("checkpoint.dir is not ready for checkpoints: ", ready.message()));
    }
  }
  checkpointing_.SetPlace(std::move(place));
  return absl::OkStatus();
}

}  // namespace sherd
