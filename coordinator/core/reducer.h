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

// Append to the job's feed, which gives the number.
struct PublishFeed {
  v1::JobEvent event;
};

// Append SuspicionExpired unless the job's epoch has ended within the time for better reasons.
struct StartSuspicionTimer {
  JobId job;
  Epoch epoch;
};

// Append FormationExpired unless the job's epoch runs within the time for forming.
struct StartFormationTimer {
  JobId job;
  Epoch epoch;
};

using Action =
    std::variant<SendAssign, SendAbort, PublishFeed, StartSuspicionTimer, StartFormationTimer>;
using Actions = std::vector<Action>;

// The rules of a job's life. Changes `state` by one durable event and returns what must be done
// about it, in order; the same events give the same state and actions, always. Time is that of the
// event. Events that are late (an older epoch, another incarnation, a job that has ended) or
// repeated change nothing but the sequence number.
//
//   QUEUED --all workers found--> FORMING --all ranks READY--> RUNNING --all FINISHED--> SUCCEEDED
//   A lost worker or failed rank: every other rank is aborted at once and the job has FAILED.
//   A rank that only says that a peer went away is a suspicion: the ranks are aborted, and what is
//   known better within a moment (the peer's exit signal) becomes the reason.
//   A worker is idle again when its rank has finished or was released, and not before.
Actions Apply(const v1::DurableEvent& event, State& state);

}  // namespace sherd
