#include "worker/train/restore_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/checkpoint/check_resumable.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/training_state.h"
#include "worker/data/roots.h"
#include "worker/train/lineage.h"
#include "worker/train/vote.h"

namespace sherd {
namespace {

bool IsDamage(const absl::Status& error) {
  return absl::IsDataLoss(error) || absl::IsNotFound(error) || absl::IsInvalidArgument(error);
}

// Rank 0's choice of checkpoints, one after the other.
class Chooser {
 public:
  Chooser(const v1::Assignment& assignment, const CheckpointSource& source, TrainObserver& observer)
      : assignment_(assignment), source_(source), observer_(observer) {}

  // The path of the one to load; "": none.
  absl::StatusOr<std::string> Next() {
    SHERD_ASSIGN_OR_RETURN(CheckpointSearch search, Search());
    for (const SkippedCheckpoint& skipped : search.skipped) Skip(skipped.path, skipped.why);
    if (!search.found) {
      if (excluded_.empty()) return "";
      return absl::DataLossError(absl::StrCat("no sound checkpoint is left: ", excluded_.front(),
                                              " and all before it are damaged"));
    }
    const CheckpointInfo& info = search.found->manifest.info;
    const absl::Status resumable = CheckResumable(info, assignment_.spec(), source_.corpus_tokens);
    if (!resumable.ok()) {
      return absl::Status(resumable.code(), absl::StrCat(search.found->path, " cannot be gone on ",
                                                         "from: ", resumable.message()));
    }
    changed_ = ChangedSettings(info, assignment_.spec());
    return search.found->path;
  }

  // Says that one which seemed sound is damaged; it is not chosen again.
  void Skip(const std::string& path, const absl::Status& why) {
    excluded_.push_back(path);
    v1::Warning warning;
    warning.set_kind("checkpoint");
    warning.set_rank(-1);
    warning.set_text(absl::StrCat("the checkpoint ", path,
                                  " is damaged and passed over: ", std::string(why.message())));
    observer_.OnWarning(warning);
  }

  bool IsNewest(const FoundCheckpoint& taken) const {
    std::vector<std::string> damaged = excluded_;
    const absl::StatusOr<CheckpointSearch> search = FindNewestSound(
        source_.files, source_.root, taken.manifest.info.training->lineage, damaged);
    return search.ok() && search->found && search->found->path == taken.path;
  }
  const std::vector<std::string>& changed() const { return changed_; }

 private:
  absl::StatusOr<CheckpointSearch> Search() {
    if (assignment_.has_restore() || IsLaterEpoch(assignment_)) {
      SHERD_ASSIGN_OR_RETURN(CheckpointSearch own, SearchOwn());
      // What is damaged is not forgotten by beginning anew.
      own_decides_ = own_decides_ || assignment_.has_restore() || own.found || !own.skipped.empty();
      if (own_decides_) return own;
    }
    const std::string& resume = assignment_.spec().checkpoint().resume();
    if (resume.empty() || resume == "none") return CheckpointSearch();
    if (resume == "latest") {
      if (!excluded_.empty()) return FindNewestSound(source_.files, source_.root, "", excluded_);
      return ResolveResume(source_.files, source_.root, resume);
    }
    SHERD_ASSIGN_OR_RETURN(const std::string path,
                           ResolveOutputDirectory(source_.output_root, resume));
    if (excluded_.empty()) return ResolveResume(source_.files, source_.root, path);
    // One that was named is not replaced by another.
    if (excluded_.front() == path) return CheckpointSearch();
    return FindNewestSound(source_.files, path, "", excluded_);
  }

  // What the job falls back to, after losing all that was held of it in memory: the newest of its
  // own history. That may be a later one than was planned, which the coordinator has not heard of,
  // and for which the planned one may have been removed.
  absl::StatusOr<CheckpointSearch> SearchOwn() {
    const v1::RestorePlan& planned = assignment_.restore();
    const bool has_planned = !planned.checkpoint().empty();
    // Without any that is known, checkpoints in the job's name may be of one before it.
    const std::string lineage =
        has_planned
            ? RecallLineage(source_.files, source_.root, assignment_.job_id(), assignment_.epoch())
            : RememberedLineage(source_.root, assignment_.job_id());
    CheckpointSearch search;
    if (!lineage.empty()) {
      SHERD_ASSIGN_OR_RETURN(search,
                             FindNewestSound(source_.files, source_.root, lineage, excluded_));
    }
    const bool newer = search.found && search.found->manifest.info.step >= planned.step();
    if (newer || !has_planned || IsExcluded(planned.checkpoint())) return search;
    absl::StatusOr<Manifest> manifest = ReadSoundManifest(planned.checkpoint());
    if (manifest.ok()) {
      search.found = FoundCheckpoint{planned.checkpoint(), *std::move(manifest)};
    } else {
      Skip(planned.checkpoint(), manifest.status());
    }
    return search;
  }

  bool IsExcluded(const std::string& path) const {
    return std::find(excluded_.begin(), excluded_.end(), path) != excluded_.end();
  }

  const v1::Assignment& assignment_;
  const CheckpointSource& source_;
  TrainObserver& observer_;
  std::vector<std::string> excluded_;
  // There was a checkpoint of the job's own: nothing else is gone on from.
  bool own_decides_ = false;
  std::vector<std::string> changed_;
};

absl::Status Load(const FoundCheckpoint& from, const RankPlan& plan, const CopyWatch& watch,
                  RankMemory& memory) {
  std::vector<TensorTarget> targets;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory.unit(static_cast<int>(index));
    AppendTargets(plan.inventory.units[index], unit.owned,
                  {unit.state.master, unit.state.m, unit.state.v}, targets);
  }
  return LoadTargets(from.path, from.manifest, targets, watch).status();
}

}  // namespace

bool IsLaterEpoch(const v1::Assignment& assignment) {
  return assignment.epoch() > std::max<int64_t>(1, assignment.first_epoch());
}

absl::StatusOr<std::optional<RestoredCheckpoint>> RestoreCheckpoint(
    const v1::Assignment& assignment, const RankPlan& plan, const CheckpointSource& source,
    RankMemory& memory, RankMesh& mesh, TrainObserver& observer) {
  const bool leads = mesh.rank() == 0;
  Chooser chooser(assignment, source, observer);
  while (true) {
    SHERD_ASSIGN_OR_RETURN(
        const std::vector<std::string> words,
        Vote(mesh, leads ? chooser.Next() : absl::StatusOr<std::string>(std::string())));
    FoundCheckpoint chosen{words.front(), {}};
    if (chosen.path.empty()) return std::nullopt;
    absl::StatusOr<Manifest> manifest = ReadSoundManifest(chosen.path);
    absl::Status loaded = manifest.status();
    if (manifest.ok()) {
      chosen.manifest = *std::move(manifest);
      loaded = Load(chosen, plan, source.watch, memory);
    }
    const absl::Status agreed = Vote(mesh, loaded);
    if (!agreed.ok()) {
      if (FailedRankOf(agreed) < 0 || !IsDamage(agreed)) return agreed;
      if (leads) chooser.Skip(chosen.path, agreed);
      continue;
    }
    RestoredCheckpoint restored{chosen.manifest.info, leads && chooser.IsNewest(chosen)};
    if (!leads) return restored;
    observer.OnLog(absl::StrCat("goes on after step ", restored.info.step, " from ", chosen.path));
    const bool began = !assignment.has_restore() && !IsLaterEpoch(assignment);
    if (began && restored.info.step == assignment.spec().train().steps()) {
      observer.OnLog(absl::StrCat("nothing is left to train; train.steps must be above ",
                                  restored.info.step, " to train on"));
    }
    if (!chooser.changed().empty()) {
      observer.OnLog(
          absl::StrCat("other than when that was saved: ", absl::StrJoin(chooser.changed(), "; ")));
    }
    return restored;
  }
}

}  // namespace sherd
