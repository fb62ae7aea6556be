#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "coordinator/core/assignment.h"
#include "coordinator/runtime/coordinator_metrics.h"
#include "coordinator/runtime/fleet.h"
#include "coordinator/runtime/hang_watch.h"
#include "coordinator/runtime/job_desk.h"
#include "coordinator/runtime/journal.h"
#include "coordinator/runtime/pause_watch.h"
#include "coordinator/runtime/rank_looks.h"
#include "coordinator/runtime/timer_queue.h"
#include "coordinator/store/event_log.h"

namespace sherd {

struct ControllerOptions {
  FleetOptions fleet;
  absl::Duration inspection_deadline = absl::Seconds(10);
  // From Assign until every rank is ready; workers give up on each other well before (F33). What
  // they have to read comes on top (runtime/state_time.h), and more while they read on.
  absl::Duration formation_time = absl::Seconds(120);
  // From Abort until the rank is released, and from ReportHoldings until it is answered; a worker
  // needs 500 ms. One that takes this long is given up, so that no job waits for it for ever.
  absl::Duration release_time = absl::Seconds(10);
  // After so many events a snapshot of the state takes their place in the log; what that costs, and
  // saves, is measured in docs/adr/0010-compaction.md.
  int64_t compact_after = 1000;
};

// The whole coordinator but its edges: no thread, no socket, time from `clock`. It is used in
// turns: BeginTurn, any calls to fleet() and jobs(), then EndTurn, which stores what they changed
// and only then tells anybody. One thread. `log`, `clock` and `metrics` must outlive it.
class Controller {
 public:
  Controller(const ControllerOptions& options, const Clock& clock, EventLog& log,
             RandomSource random, CoordinatorMetrics& metrics);
  Controller(const Controller&) = delete;

  // Builds the state from the log; first, once. Errors are those of the log.
  absl::Status Recover();

  Fleet& fleet() { return fleet_; }
  JobDesk& jobs() { return jobs_; }
  const State& state() const { return journal_.state(); }

  // Puts off what is waited for when this process did not run for a while (PauseWatch).
  void BeginTurn();
  // Does what was due when the turn began, for what has come since may lie unread; and ends the
  // turn. An error is the event log's and final.
  absl::Status EndTurn();
  // When the next turn must end at the latest, even if nothing happens.
  absl::Time NextDeadline() const;
  // An end in order, after EndTurn: what was committed is left as a snapshot (Journal::Seal).
  void Seal() { journal_.Seal(); }
  // Closes all streams and drops what waits.
  void Stop();

 private:
  void Append(v1::DurableEvent event);
  void Perform(const Action& action);
  void Assign(const SendAssign& action);
  void Abort(const SendAbort& action);
  void AskHoldings(const SendReportHoldings& action);
  void WatchFormation(const JobId& job, Epoch epoch);
  void WatchRelease(const WorkerId& worker, Incarnation incarnation, const Seat& seat);
  void WatchHoldings(const WorkerId& worker, Incarnation incarnation, const JobId& job,
                     Epoch epoch);
  void WatchPause(const JobId& job, Epoch epoch);
  // Silent workers are waited for twice as long as it takes to find them silent; and as long as
  // that before the state of a job that waits is saved, unless the record says how long.
  void WatchPatience(const JobId& job, Epoch epoch);

  const ControllerOptions options_;
  const Clock& clock_;
  CoordinatorMetrics& metrics_;
  Journal journal_;
  TimerQueue timers_;
  Fleet fleet_;
  JobDesk jobs_;
  RankLooks looks_;
  HangWatch hangs_;
  AssignmentBuilder assignments_;
  absl::Time turn_began_ = absl::InfinitePast();
  absl::Time next_check_ = absl::InfinitePast();
  PauseWatch pauses_;
};

}  // namespace sherd
