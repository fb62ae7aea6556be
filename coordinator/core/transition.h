#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/state.h"

namespace sherd {

// One application of an event: the state under change and the actions so far, and what any rule
// may do to a job. The reducer says when something happens to a job; epoch_end.h, next_epoch.h and
// schedule.h how.
class Transition {
 public:
  Transition(int64_t time_unix_ms, State& state) : now_(time_unix_ms), state_(state) {}

  State& state() { return state_; }
  int64_t now() const { return now_; }
  Actions TakeActions() { return std::move(actions_); }
  void Act(Action action) { actions_.push_back(std::move(action)); }

  JobRecord* Job(const JobId& id);
  WorkerState* Worker(const WorkerId& id);

  // Adds to the job's feed.
  void Publish(const JobRecord& job, v1::JobEvent event);
  // The same with a line of the coordinator's own.
  void Tell(const JobRecord& job, std::string line);
  // Moves on with a sentence that users see.
  void Enter(JobRecord& job, v1::JobState next, std::string reason);
  // Enters a final state; its ranks are aborted and keep their workers until released, and nobody
  // need hold anything of it any more.
  void End(JobRecord& job, v1::JobState final, std::string reason);
  // Tells every rank that may still work to stop; once an epoch.
  void AbortRanks(JobRecord& job, absl::string_view reason);
  // Tells everybody who holds something of the job that nothing older than the current epoch, or
  // nothing at all, is needed any more; forgets the answers, but for those of the current epoch.
  void Retain(JobRecord& job, bool ended);

 private:
  const int64_t now_;
  State& state_;
  Actions actions_;
};

// The worker has the seat still, and is the process that got it.
bool HasSeat(const State& state, const JobRecord& job, int rank);

}  // namespace sherd
