#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/state.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// Tell a worker which rank it is; core/assignment.h builds the message.
struct SendAssign {
  WorkerId worker;
  Incarnation incarnation;
  Seat seat;
};

// Tell a worker to stop; it answers with RELEASED, also when it knows nothing of the job.
struct SendAbort {
  WorkerId worker;
  Incarnation incarnation;
  Seat seat;
  std::string reason;
};

// Tell a worker to store shards of these ranks of the job's current epoch, which share no memory
// with it.
struct SendHold {
  WorkerId worker;
  Incarnation incarnation;
  JobId job;
  Epoch epoch;
  std::vector<int> owners;
};

// Append to the job's feed, which gives the number.
struct PublishFeed {
  v1::JobEvent event;
};

// Drop the feed of a job that is forgotten.
struct DropFeed {
  JobId job;
};

// Ask a worker that may hold copies for the job what it holds; it answers with HoldingsReport.
struct SendReportHoldings {
  WorkerId worker;
  Incarnation incarnation;
  JobId job;
  // The one that has ended.
  Epoch epoch;
};

// Tell a worker that it may drop what it holds of the job from epochs before this one; of a job
// that has ended, everything.
struct SendRetain {
  WorkerId worker;
  Incarnation incarnation;
  JobId job;
  Epoch epoch;
  bool ended = false;
};

// Tell a rank to stop together with the others; it answers with RELEASED.
struct SendPause {
  WorkerId worker;
  Incarnation incarnation;
  Seat seat;
  std::string reason;
};

// Tell a worker that nothing depends on any more to end.
struct SendShutdown {
  WorkerId worker;
  Incarnation incarnation;
  std::string reason;
};

// Append HangDetected unless the ranks of the job's epoch have stopped within the hang time-out.
struct StartPauseTimer {
  JobId job;
  Epoch epoch;
};

// Append FormationExpired unless the job's epoch runs within the time for forming.
struct StartFormationTimer {
  JobId job;
  Epoch epoch;
};

// Append PatienceExpired when the job has had the patience of its record for long enough.
struct StartPatienceTimer {
  JobId job;
  Epoch epoch;
};

using Action = std::variant<SendAssign, SendAbort, PublishFeed, StartFormationTimer,
                            SendReportHoldings, SendRetain, SendPause, SendShutdown,
                            StartPauseTimer, SendHold, StartPatienceTimer, DropFeed>;
using Actions = std::vector<Action>;

// So many of the jobs that have ended are known; older ones are forgotten, each at the earliest
// when the workers that return are not told of its end any more. With a job go its request id, so
// that a submission which is retried later makes another one, and its feed.
inline constexpr size_t kEndedJobsKept = 1000;
// For so long after its end.
inline constexpr int64_t kEndedToldMs = 10 * 60 * 1000;

// The rules of a job's life (rules.h: their number). Changes `state` by one durable event and
// returns what must be done about it, in order; the same events give the same state and actions,
// always. Time is that of the event. Events that are late (an older epoch, another incarnation, a
// job that has ended) or repeated change nothing but the sequence number.
//
//   QUEUED --all workers found--> FORMING --all ranks READY--> RUNNING --all FINISHED--> SUCCEEDED
//                                   ^  |                          |
//                                   |  +---the epoch ends---------+
//                                   |              v
//                                   +--------- RECOVERING
//
//   An epoch ends when a worker is lost that it names, as rank or holder; when a rank fails or
//   leaves; by a hang; by plan (docs/adr/0009). Every rank is told to stop at once, or by plan
//   after a step, and the next epoch is planned when all have said what they hold, or are lost.
//   What only says that a peer went away is a suspicion: it ends the epoch like any cause, and what
//   is known better by the time the next one is planned (the peer's exit signal) becomes the
//   reason. A failure that would come again, and the third epoch in a row without a step, fail the
//   job. A worker is idle again when its rank has finished or was released, and not before.
//   A job of strategy auto first has epochs that measure, and end by plan (core/trials.h).
//   A job that cannot go on saves its state first (core/save_first.h); one that would lose steps
//   waits a while for workers that are only silent.
Actions Apply(const v1::DurableEvent& event, State& state);

}  // namespace sherd
