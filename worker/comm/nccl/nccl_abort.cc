// How an epoch's communicators are aborted, all at once, and what happens when that hangs.
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/steady_await.h"
#include "worker/comm/nccl/nccl_epoch.h"

namespace sherd {
namespace {

// A call of NCCL that waits for nobody has returned by then. One that has not is freed of what it
// waits for by the abort itself.
constexpr absl::Duration kCallPatience = absl::Milliseconds(100);

}  // namespace

void ExitNcclStuck(absl::string_view why) {
  Log(Severity::kError, absl::StrCat(why, "; the process ends with exit code ", kExitNcclStuck));
  std::fflush(stderr);
  ::_exit(kExitNcclStuck);
}

NcclEpoch::InFlight::InFlight(NcclEpoch& epoch) : epoch_(epoch) {
  absl::MutexLock lock(&epoch_.mutex_);
  ++epoch_.in_flight_;
}

NcclEpoch::InFlight::~InFlight() {
  absl::MutexLock lock(&epoch_.mutex_);
  --epoch_.in_flight_;
}

void NcclEpoch::Abort(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  if (end_.ok()) end_ = absl::AbortedError(reason.message());
}

absl::Status NcclEpoch::status() const {
  absl::MutexLock lock(&mutex_);
  return end_;
}

void NcclEpoch::AwaitAborted() const {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&aborted_));
}

int NcclEpoch::Listen(std::function<void(const absl::Status& reason)> listener) {
  absl::MutexLock lock(&listeners_mutex_);
  listeners_.emplace(++next_listener_, std::move(listener));
  return next_listener_;
}

void NcclEpoch::Forget(int listener) {
  absl::MutexLock lock(&listeners_mutex_);
  listeners_.erase(listener);
}

bool NcclEpoch::AwaitAbort() {
  absl::MutexLock lock(&mutex_);
  const auto wanted = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || !end_.ok(); };
  mutex_.Await(absl::Condition(&wanted));
  return !end_.ok();
}

void NcclEpoch::AbortWhenAsked() {
  if (AwaitAbort()) AbortAll();
}

void NcclEpoch::AbortAll() {
  thread_.Close();
  const absl::Status reason = status();
  {
    absl::MutexLock lock(&listeners_mutex_);
    for (const auto& [number, listener] : listeners_) listener(reason);
  }
  // A communicator is freed by its abort: no call may be at it, if that can be had.
  thread_.AwaitIdle(kCallPatience);
  std::vector<NcclComm> comms;
  {
    absl::MutexLock lock(&mutex_);
    comms = std::exchange(comms_, {});
    taken_ = true;
  }
  // One group: members of several communicators would wait for each other otherwise, each in the
  // abort of another one.
  if (!comms.empty()) {
    const bool grouped = api_.GroupStart() == NcclResult::kSuccess;
    for (NcclComm comm : comms) {
      const NcclResult result = api_.CommAbort(comm);
      if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
        Log(Severity::kWarning, absl::StrCat("ncclCommAbort: ", api_.Text(result, nullptr)));
      }
    }
    if (grouped) (void)api_.GroupEnd();
  }
  absl::MutexLock lock(&mutex_);
  aborted_ = true;
}

std::string NcclEpoch::StillUnderWay(const Deadline& deadline) {
  std::vector<std::string> under_way;
  {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]()
                           ABSL_NO_THREAD_SAFETY_ANALYSIS { return aborted_ && in_flight_ == 0; };
    if (!AwaitSteadily(mutex_, absl::Condition(&ended), deadline.left())) {
      under_way.emplace_back(aborted_ ? "work on the device goes on"
                                      : "ncclCommAbort has not returned");
    }
  }
  if (!thread_.AwaitIdle(deadline.left()))
    under_way.emplace_back("a call of NCCL has not returned");
  return absl::StrJoin(under_way, ", ");
}

void NcclEpoch::ExitWhenStuck() {
  if (!AwaitAbort()) return;
  const std::string stuck = StillUnderWay(Deadline(options_.abort_deadline));
  if (stuck.empty()) return;
  options_.exit_hard(absl::StrCat("NCCL could not be aborted within ",
                                  absl::FormatDuration(options_.abort_deadline), " (", stuck,
                                  ") after: ", status().message()));
}

}  // namespace sherd
