#pragma once

#include <string>
#include <vector>

#include "coordinator/core/assignment.h"
#include "coordinator/core/state.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// What a worker must be told that connects again, or that a new process replaces. Pure.

// The worker is a rank of an epoch that is at work, whose end is not known yet.
bool WorksIn(const State& state, const WorkerState& worker);

// What `worker`, which came back with `hello` on a new stream, may have missed, in order: what it
// is or is not any more, what it is to tell, what it may drop, that it is to end. `reported` is how
// far the feed of the worker's job is, `now_unix_ms` the time.
std::vector<v1::SessionResponse> MissedMessages(const State& state, const WorkerState& worker,
                                                const v1::Hello& hello,
                                                AssignmentBuilder& assignments,
                                                const Reported& reported, int64_t now_unix_ms);

// `worker`, which came back with `hello`, works as a rank that the log does not know
// (core/worker_events.h, IsBeyond), and was not told to stop yet.
bool SpeaksBeyond(const State& state, const WorkerState& worker, const v1::Hello& hello);

// `worker`, which came back with `hello`, knows nothing of its rank, which has run and whose end
// has not been heard of: it has ended, and its report is on the way or was lost with the log's end.
bool OwesReport(const State& state, const WorkerState& worker, const v1::Hello& hello);

// The messages of these names.
v1::SessionResponse AbortMessage(const Seat& seat, const std::string& reason);
v1::SessionResponse PauseMessage(const Seat& seat, const std::string& reason);
// To whom stores shards of `owners`, ranks of the job's current epoch, over the network.
v1::SessionResponse HoldMessage(const JobRecord& job, const std::vector<int>& owners);
v1::SessionResponse ReportHoldingsMessage(const JobId& job, Epoch epoch);
v1::SessionResponse RetainMessage(const JobId& job, Epoch epoch, bool ended);
v1::SessionResponse ShutdownMessage(const std::string& reason);

}  // namespace sherd
