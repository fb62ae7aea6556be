#include "plan/assignment_rules.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"
#include "plan/model_folder.h"
#include "plan/parallel_rules.h"
#include "plan/strategy.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("the assignment ", parts...));
}

absl::Status CheckSpec(const v1::JobSpec& spec) {
  const v1::InvalidFields invalid = ValidateJobSpec(spec);
  if (invalid.fields_size() > 0) {
    const v1::InvalidField& first = invalid.fields(0);
    return Wrong("has a job that is not valid: ", first.field(), ": ", first.description());
  }
  if (AwaitsShape(spec.model())) return Wrong("has a model whose shape was not looked up");
  return absl::OkStatus();
}

// The specification is valid.
absl::Status CheckWorld(const v1::JobSpec& spec, int64_t world) {
  if (FindStrategy(spec.parallel()) == nullptr) return Wrong("has a strategy that nobody executes");
  const int64_t granule = WorldGranuleOf(spec.parallel());
  if (world % granule == 0) return absl::OkStatus();
  return Wrong("has a world of ", world, ", which is no multiple of ", granule);
}

absl::Status CheckRestore(const v1::JobSpec& spec, const v1::RestorePlan& restore) {
  if (restore.step() < 0) return Wrong("restores step ", restore.step());
  if (!restore.checkpoint().empty()) return absl::OkStatus();
  if (restore.epoch() < 1 || restore.world() < 1 || restore.world() > kMaxWorkers) {
    return Wrong("restores a version of epoch ", restore.epoch(), " and a world of ",
                 restore.world());
  }
  v1::JobSpec held = spec;
  if (restore.has_parallel()) {
    *held.mutable_parallel() = restore.parallel();
    SHERD_RETURN_IF_ERROR(CheckSpec(held));
  }
  SHERD_RETURN_IF_ERROR(CheckWorld(held, restore.world()));
  // Shards are cut of what a place in the tensor-parallel group holds.
  if (TensorDegreeOf(held.parallel()) != TensorDegreeOf(spec.parallel())) {
    return Wrong("restores a version of tensor-parallel groups of ",
                 TensorDegreeOf(held.parallel()), " ranks in such of ",
                 TensorDegreeOf(spec.parallel()));
  }
  for (const v1::RestoreSource& source : restore.sources()) {
    if (source.owner() < 0 || source.owner() >= restore.world()) {
      return Wrong("restores the shard of rank ", source.owner(), " of a world of ",
                   restore.world());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAssignment(const v1::Assignment& assignment) {
  if (assignment.job_id().empty()) return Wrong("names no job");
  if (assignment.epoch() < 1) return Wrong("is of epoch ", assignment.epoch());
  const int32_t world = assignment.world();
  if (world < 1 || world > kMaxWorkers) return Wrong("has a world of ", world);
  if (assignment.rank() < 0 || assignment.rank() >= world) {
    return Wrong("names rank ", assignment.rank(), " of a world of ", world);
  }
  if (assignment.ranks_on_host() < 1 || assignment.ranks_on_host() > world) {
    return Wrong("has ", assignment.ranks_on_host(), " ranks on its host, of a world of ", world);
  }
  SHERD_RETURN_IF_ERROR(CheckSpec(assignment.spec()));
  if (assignment.has_trial() && assignment.trial().steps() < 0) {
    return Wrong("tries ", assignment.trial().steps(), " steps");
  }
  // A probe lays nothing out, and restores nothing.
  if (assignment.has_trial() && assignment.trial().steps() == 0) return absl::OkStatus();
  SHERD_RETURN_IF_ERROR(CheckWorld(assignment.spec(), world));
  if (!assignment.has_restore()) return absl::OkStatus();
  return CheckRestore(assignment.spec(), assignment.restore());
}

}  // namespace sherd
