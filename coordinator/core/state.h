#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// A rank of one epoch of a job.
struct Seat {
  JobId job;
  Epoch epoch;
  int rank = 0;
  friend bool operator==(const Seat&, const Seat&) = default;
};

struct WorkerState {
  WorkerId id;
  Incarnation incarnation;
  std::string device;
  std::string host;
  std::string shared_memory_domain;
  // Where links of its shared-memory domain come, and those of others; the latter may be "".
  std::string data_address;
  std::string network_address;
  std::string numerics_fingerprint;
  // Absolute; "" when the worker did not say.
  std::string output_root;
  bool alive = false;
  int64_t lost_unix_ms = 0;
  // Held from Assign until the rank has finished or was released, so also for a while after the
  // job has ended. A worker without a seat is idle.
  std::optional<Seat> seat;
  // Earlier lives of which a later one is known: they never come back. The newest last, bounded.
  std::vector<Incarnation> retired;
};

enum class RankPhase { kForming, kRunning, kFinished, kFailed, kLost, kReleased };

struct RankState {
  WorkerId worker;
  Incarnation incarnation;
  RankPhase phase = RankPhase::kForming;
  // How it ended (F54).
  std::string reason;
};

// Why a QUEUED job is not placed.
enum class Waiting { kNone, kWorkers, kIdleWorkers, kEarlierJob };

struct JobRecord {
  JobId id;
  std::string request_id;
  v1::JobSpec spec;
  std::string secret;
  // Position among all submissions.
  int64_t order = 0;
  v1::JobState state = v1::JOB_STATE_QUEUED;
  std::string reason;
  Waiting waiting = Waiting::kNone;
  // 0 until the first placement.
  Epoch epoch;
  // Of the current epoch, by rank.
  std::vector<RankState> ranks;
  // The current epoch's ranks were told to stop.
  bool aborted = false;
  // What a rank said about a peer that went away, while a better reason may still come; "" else.
  std::string suspicion;
  int64_t step = 0;
  int64_t submitted_unix_ms = 0;
  int64_t ended_unix_ms = 0;
  std::string weights_path;
};

// All that the coordinator knows for certain: a pure function of the durable events.
struct State {
  std::map<JobId, JobRecord> jobs;
  // Request id of a submission → the job it made (F53).
  std::map<std::string, JobId> jobs_by_request;
  // QUEUED jobs in the order in which they are placed: priority, then submission.
  std::vector<JobId> queue;
  std::map<WorkerId, WorkerState> workers;
  int64_t submissions = 0;
  // Of the last applied event.
  int64_t sequence = 0;
};

bool IsTerminal(v1::JobState state);
// FORMING or RUNNING.
bool HoldsWorkers(v1::JobState state);

// nullptr when there is none.
const JobRecord* FindJob(const State& state, const JobId& id);
const WorkerState* FindWorker(const State& state, const WorkerId& id);

// The id that the next submission of a job called `name` gets: the name, reduced to lower-case
// letters, digits and dashes, and the number of the submission, which makes it unique: "tiny-7".
JobId NextJobId(const State& state, const std::string& name);

// Everything in `state` as readable text; equal states have equal text.
std::string Describe(const State& state);

}  // namespace sherd
