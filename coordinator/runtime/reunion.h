#pragma once

#include <optional>
#include <string>

#include "coordinator/core/assignment.h"
#include "coordinator/core/state.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// What a worker must be told that connects again, or that a new process replaces. Pure.

// The worker is a rank of a live epoch, whose end is not known yet.
bool WorksIn(const State& state, const WorkerState& worker);

// What `worker`, which came back with `hello` on a new stream, may have missed; nothing when
// nothing.
std::optional<v1::SessionResponse> MissedMessage(const State& state, const WorkerState& worker,
                                                 const v1::Hello& hello,
                                                 AssignmentBuilder& assignments);

// `worker`, which came back with `hello`, knows nothing of its rank, which has run and whose end
// has not been heard of: it has ended, and its report is on the way or was lost with the log's end.
bool OwesReport(const State& state, const WorkerState& worker, const v1::Hello& hello);

// The message that tells a worker to stop the seat's work.
v1::SessionResponse AbortMessage(const Seat& seat, const std::string& reason);

}  // namespace sherd
