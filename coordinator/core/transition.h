#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/core/placement.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/state.h"

namespace sherd {

// One application of an event: the state under change and the actions so far. The reducer says when
// something happens to a job, a transition how.
class Transition {
 public:
  Transition(int64_t time_unix_ms, State& state) : now_(time_unix_ms), state_(state) {}

  State& state() { return state_; }
  int64_t now() const { return now_; }
  Actions TakeActions() { return std::move(actions_); }
  void Act(Action action) { actions_.push_back(std::move(action)); }

  JobRecord* Job(const JobId& id);
  WorkerState* Worker(const WorkerId& id);

  void Enqueue(JobRecord& job);
  // Moves on with a sentence that users see.
  void Enter(JobRecord& job, v1::JobState next, std::string reason);
  // Enters a final state; its ranks are aborted and keep their workers until released.
  void End(JobRecord& job, v1::JobState final, std::string reason);
  // Tells every rank that may still work to stop; once an epoch.
  void AbortRanks(JobRecord& job, absl::string_view reason);
  // Places every queued job that finds its workers, in queue order.
  void PlaceQueue();
  // The same after nothing but the arrival of `job`, which costs less while nobody is idle.
  void PlaceSubmitted(JobRecord& job);

 private:
  // Ends a job that found its workers but would write where a running one does, which could not be
  // told before the first worker named its output root. False when there is no such job.
  bool RefuseDirectory(JobRecord& job);
  // Places one job after those before it in the queue; `ahead` is the first that waits for busy
  // workers.
  void PlaceNext(JobRecord& job, WorkerPools& pools, const JobRecord*& ahead);
  void Publish(const JobRecord& job, v1::JobEvent event);
  void Form(JobRecord& job, const std::vector<WorkerId>& workers);
  void Wait(JobRecord& job, Waiting waiting, std::string reason);
  void WarnOfMixedNumerics(const JobRecord& job);

  const int64_t now_;
  State& state_;
  Actions actions_;
};

}  // namespace sherd
