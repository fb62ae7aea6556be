// What a rank's training leaves, also on a disk that is full for a while.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "common/status_macros.h"
#include "worker/comm/deadline.h"
#include "worker/train/lineage.h"
#include "worker/train/rank_job.h"
#include "worker/train/rank_state.h"
#include "worker/train/vote.h"
#include "worker/train/write_weights.h"

namespace sherd {
namespace {

// On the file system of `root`, which need not be there yet; -1: unknown.
int64_t FreeBytes(const std::string& root) {
  for (std::filesystem::path path = root; !path.empty(); path = path.parent_path()) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(path, error);
    if (!error) return static_cast<int64_t>(space.available);
    if (path == path.parent_path()) break;
  }
  return -1;
}

std::string Bytes(int64_t bytes) {
  return bytes < 0 ? "an unknown number of bytes" : Counted(bytes, "byte");
}

int64_t WeightBytes(const RankPlan& plan) {
  return plan.inventory.elements * static_cast<int64_t>(sizeof(float));
}

absl::Duration Sum(const RetryTimes& times) {
  absl::Duration sum;
  for (int retry = 1; retry <= times.retries; ++retry) sum += DelayBefore(times, retry);
  return sum;
}

// The same failure in other words; still of the rank that brought it.
absl::Status InWords(const absl::Status& failure, absl::StatusCode code, const std::string& words) {
  absl::Status told(code, words);
  failure.ForEachPayload([&told](absl::string_view type, const absl::Cord& payload) {
    told.SetPayload(type, payload);
  });
  return told;
}

}  // namespace

absl::Duration DelayBefore(const RetryTimes& times, int retry) {
  absl::Duration delay = times.first;
  for (int doubled = 1; doubled < retry && delay < times.longest; ++doubled) delay *= 2;
  return std::min(delay, times.longest);
}

absl::StatusOr<std::string> RankJob::WriteWeights(const FormationAbort& abort) {
  finishing_ = "writing the weights";
  SHERD_ASSIGN_OR_RETURN(std::string root, Directory());
  BringStateHome(plan_, memory_, device_);
  SHERD_RETURN_IF_ERROR(device_.status());
  for (int retry = 1;; ++retry) {
    const absl::Status written =
        sherd::WriteWeights(weight_files_, output_.files, assignment_, plan_, root, step_, *ops_,
                            device_, memory_, mesh_);
    if (written.ok()) break;
    // All ranks have heard the same, and count alike.
    const bool full = absl::IsResourceExhausted(written) && FailedRankOf(written) >= 0;
    if (abort.aborted()) return absl::AbortedError(abort.reason());
    if (!full) return written;
    if (retry > output_.full_disk.retries) return NoRoom(written, root);
    if (leads()) TellNoRoom(written, root, retry);
    SHERD_RETURN_IF_ERROR(AwaitRoom(abort, DelayBefore(output_.full_disk, retry)));
  }
  if (leads()) ForgetLineage(output_.files, root, assignment_.job_id());
  return root;
}

void RankJob::TellNoRoom(const absl::Status& failure, const std::string& root, int retry) {
  const RetryTimes& times = output_.full_disk;
  if (retry > 1) {
    observer_.OnLog(absl::StrCat("the weights still cannot be written: ", failure.message()));
    return;
  }
  Warn("disk", -1,
       absl::StrCat("the weights of step ", step_.load(), " cannot be written to ", root, ": ",
                    failure.message(), ". They need ", Bytes(WeightBytes(plan_)), " there and ",
                    Bytes(FreeBytes(root)), " are free. The job keeps its state and tries again, ",
                    Counted(times.retries, "time"), " within ", absl::FormatDuration(Sum(times))));
}

absl::Status RankJob::NoRoom(const absl::Status& failure, const std::string& root) const {
  const bool saved = plan_.saves;
  // Another attempt would wait as long for the same.
  return InWords(
      failure, absl::StatusCode::kFailedPrecondition,
      absl::StrCat(
          "the weights of step ", step_.load(), " could not be written to ", root, " within ",
          absl::FormatDuration(Sum(output_.full_disk)), ": they need ", Bytes(WeightBytes(plan_)),
          " there and ", Bytes(FreeBytes(root)), " are free (", failure.message(), "). Make room",
          saved ? ", and checkpoint.resume: latest goes on from the job's newest checkpoint"
                : "; the job saved no checkpoints to go on from"));
}

absl::Status RankJob::AwaitRoom(const FormationAbort& abort, absl::Duration delay) {
  const Deadline end(delay);
  awaits_room_since_ = std::chrono::steady_clock::now().time_since_epoch().count();
  while (!abort.aborted() && !end.passed()) {
    pollfd aborted = {abort.descriptor(), POLLIN, 0};
    ::poll(&aborted, 1, static_cast<int>(absl::ToInt64Milliseconds(end.left())) + 1);
  }
  awaits_room_since_ = 0;
  return abort.aborted() ? absl::AbortedError(abort.reason()) : absl::OkStatus();
}

}  // namespace sherd
