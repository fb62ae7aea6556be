#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "sherd/v1/layout.pb.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// How a worker process ends. What a restart cannot mend is final: the supervisor lets it rest.
inline constexpr int kExitAsked = 0;    // told to leave
inline constexpr int kExitRefused = 1;  // cannot work, said why in one sentence
inline constexpr int kExitUsage = 2;    // wrong command line
inline constexpr int kExitStuck = 70;   // a trainer did not end, or its device failed; restart it

// One rank of one epoch of a job.
struct RankId {
  JobId job;
  Epoch epoch;
  int32_t rank = 0;
  friend bool operator==(const RankId&, const RankId&) = default;
};

// ---- What happens to a worker. ----------------------------------------------------------------
// A session that breaks is no event here: training goes on, reports wait in the session (F30, F31).

struct AssignReceived {
  v1::Assignment assignment;
};
struct AbortReceived {
  v1::Abort abort;
};
struct PauseReceived {
  v1::Pause pause;
};
struct LocateReceived {
  v1::LocateRank request;
};
// The current trainer has returned and is destroyed: nothing that it held is left but versions of
// its shard.
struct TrainerEnded {
  absl::Status status;
  bool paused = false;
  bool final = false;
  int64_t step = 0;
  std::string operation;
  int32_t lost_peer = -1;
  std::string lost_holder;
  std::string weights_path;
  std::vector<v1::StepReport> last_steps = {};
  // Of one that measured.
  std::optional<v1::TrialReport> trial = {};
};
// SIGTERM, the coordinator's Shutdown, or a session that cannot go on.
struct StopRequested {
  int exit_code = kExitAsked;
  std::string reason;
  // With a trainer that still runs: the coordinator lets a worker go when nothing depends on it, so
  // this one was given up, and a new process is wanted in its place.
  int exit_code_at_work = exit_code;
};
// The trainer was told to abort long ago and still runs.
struct AbortOverdue {};

using AgentEvent = std::variant<AssignReceived, AbortReceived, PauseReceived, LocateReceived,
                                TrainerEnded, StopRequested, AbortOverdue>;

// ---- What the worker then does, in order. -----------------------------------------------------

struct StartTrainer {
  v1::Assignment assignment;
};
// TrainerEnded must follow within the worker's abort limit, else AbortOverdue.
struct AbortTrainer {
  std::string reason;
};
// It ends, paused, when all ranks have agreed to.
struct PauseTrainer {};
// Tell where the trainer is, as an answer.
struct TellPosition {
  RankId id;
  // That it answers.
  int64_t question = 0;
};
// A release goes with all that the process holds of the job, and from then on it takes in nothing
// of that epoch.
struct Report {
  v1::RankReport report;
};
// After the reports before it have been sent. With a trainer still running only as kExitStuck.
struct ExitProcess {
  int code = kExitAsked;
  std::string reason;
};

using AgentAction =
    std::variant<StartTrainer, AbortTrainer, PauseTrainer, TellPosition, Report, ExitProcess>;

// The worker's side of a rank's life: a pure function of its events.
//
//             Assign / StartTrainer
//        ┌────────────────────────────► kTraining
//        │                               │  │
//        │ TrainerEnded                  │  │ Abort of this or a later epoch,
//        │ / Report(RankFinished|Failed| │  │ StopRequested
//        │          Released)            │  │
//      kIdle ◄───────────────────────────┘  │ / AbortTrainer
//        ▲  │                               ▼
//        │  │ StopRequested             kAborting ── AbortOverdue / ExitProcess(kExitStuck) ─┐
//        │  │ / ExitProcess               │   │                                             │
//        │  │              TrainerEnded   │   │ TrainerEnded after StopRequested            │
//        └──┼── / Report(RankReleased) ───┘   │ / Report(RankReleased|Finished|Failed),     │
//           │                                 │   ExitProcess                               │
//           └────────────────────────► kStopped ◄─────────────────────────────────────────┘
//
// Rules
// - Every Abort is answered by RankReleased of its epoch, at once when no trainer of that epoch
//   runs, else after the trainer has ended; Aborts of one epoch that come before that share one.
// - A Pause is answered like an Abort when no trainer of its epoch runs; else the trainer is asked
//   to stop, and its end as asked is answered by RankReleased.
// - An Assign of an epoch of its job that was assigned or aborted before changes nothing (F25).
// - An Assign that comes while another rank is worked on is answered by RankFailed.
// - Nothing is started or answered in kStopped; the end of the process says the rest.
// Not thread-safe.
class AgentState {
 public:
  enum class Phase { kIdle, kTraining, kAborting, kStopped };

  std::vector<AgentAction> Handle(const AgentEvent& event);

  Phase phase() const { return phase_; }
  // The rank whose trainer exists, for Hello.
  const std::optional<RankId>& rank() const { return rank_; }

  // Jobs whose newest epoch is remembered; older ones are forgotten so that a worker's memory does
  // not grow with the number of jobs.
  static constexpr size_t kRememberedJobs = 64;

 private:
  using Actions = std::vector<AgentAction>;

  Actions On(const AssignReceived& event);
  Actions On(const AbortReceived& event);
  Actions On(const PauseReceived& event);
  Actions On(const LocateReceived& event);
  Actions On(const TrainerEnded& event);
  Actions On(const StopRequested& event);
  Actions On(const AbortOverdue& event);

  // The newest known rank of the job; nullptr when none is remembered.
  const RankId* Find(const JobId& job) const;
  void Remember(const RankId& id);

  Phase phase_ = Phase::kIdle;
  std::optional<RankId> rank_;             // kTraining, kAborting
  std::vector<RankId> owed_releases_;      // kAborting: one for each epoch that was aborted
  std::optional<StopRequested> stopping_;  // kAborting: leave when the trainer has ended
  std::deque<RankId> newest_;              // the newest epoch of each job, oldest job first
};

// "idle", "training", "aborting", "stopped".
absl::string_view NameOf(AgentState::Phase phase);

}  // namespace sherd
