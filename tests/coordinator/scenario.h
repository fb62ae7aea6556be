#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/core/reducer.h"
#include "coordinator/core/state.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

inline constexpr auto kReady = v1::RankChanged::MILESTONE_READY;
inline constexpr auto kReleased = v1::RankChanged::MILESTONE_RELEASED;
inline constexpr auto kFinished = v1::RankChanged::MILESTONE_FINISHED;

// What a test asks of a job.
struct JobRequest {
  std::string name = "tiny";
  int64_t min_workers = 1;
  int64_t max_workers = 0;
  int64_t tensor = 1;
  int32_t priority = 0;
  int64_t replicas = 1;
  // "": one of its own.
  std::string request_id = {};
  // Where it saves checkpoints.
  std::string dir = {};
  // Of strategy auto.
  bool is_auto = false;
};

v1::JobSpec MakeSpec(const JobRequest& request);

v1::DurableEvent Submitted(const JobId& id, const JobRequest& request);
v1::DurableEvent CancelRequest(const JobId& id);
// On host "host" and in domain "host/0" unless `host` says otherwise.
v1::DurableEvent Joined(const std::string& worker, uint64_t incarnation,
                        const std::string& host = "host");
v1::DurableEvent Lost(const std::string& worker, uint64_t incarnation, const std::string& cause,
                      int64_t step = 0);
// Nothing was heard of it for three seconds.
v1::DurableEvent Silent(const std::string& worker, uint64_t incarnation, int64_t step = 0);
v1::DurableEvent ExpirePatience(const JobRecord& job);
v1::DurableEvent Changed(const JobRecord& job, int rank, v1::RankChanged::Milestone milestone);
// The rank has measured what its epoch was for: a step of so long, or a machine's figures.
v1::DurableEvent Measured(const JobRecord& job, int rank, double step_seconds);
v1::DurableEvent Failed(const JobRecord& job, int rank, const std::string& error, int64_t step,
                        int lost_peer = -1);
// The rank does not reach the process at this address, which was to store its shard.
v1::DurableEvent Unreached(const JobRecord& job, int rank, const std::string& address);
v1::DurableEvent ExpireFormation(const JobRecord& job);
v1::DurableEvent Progressed(const JobRecord& job, int64_t step);
v1::DurableEvent Hung(const JobRecord& job, int rank, const std::string& verdict,
                      int64_t stalled_ms);
v1::DurableEvent Saved(const JobRecord& job, int64_t step, const std::string& path);
v1::DurableEvent Drained(const std::string& worker, uint64_t incarnation = 1);
// A rank of the job's epoch is released; its process holds `step` of its own shard and of those
// that it stores copies of. Nothing for step 0.
v1::DurableEvent Released(const JobRecord& job, int rank, int64_t step);
// The same of a worker that only stores copies.
v1::DurableEvent Answered(const JobRecord& job, const CopyHolder& holder, int64_t step);

// A state, the events that made it, and the actions of the last one.
class Scenario {
 public:
  // Numbers and dates the event; each is a millisecond after the one before.
  const Actions& Do(v1::DurableEvent event);

  // Workers "w0", "w1", … with incarnation 1.
  void JoinWorkers(int count);
  // Workers "a", "b", … on hosts of their own.
  void JoinHosts(const std::string& hosts);
  JobId Submit(const JobRequest& request = {});
  // Submits a job that finds its workers, and all its ranks are ready.
  JobId Run(const JobRequest& request);
  // So many workers join, and run a job that needs them all.
  JobId RunOnAll(int workers);
  // Of the job's epoch, whoever has not left it answers; all hold `step`.
  void ReleaseAll(const JobId& id, int64_t step);
  void ReportAll(const JobId& id, v1::RankChanged::Milestone milestone);
  // The epoch of a job of strategy auto measures, on all ranks.
  void MeasureAll(const JobId& id, double step_seconds);

  const State& state() const { return state_; }
  const JobRecord& job(const JobId& id) const { return state_.jobs.at(id); }
  const WorkerState& worker(const std::string& id) const { return state_.workers.at(WorkerId(id)); }
  const std::vector<v1::DurableEvent>& log() const { return log_; }
  const Actions& actions() const { return actions_; }
  // Lets time pass before the next event.
  void Advance(int64_t milliseconds) { now_ += milliseconds; }

  template <typename T>
  std::vector<T> ActionsOf() const {
    std::vector<T> found;
    for (const Action& action : actions_) {
      if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
    }
    return found;
  }
  // Workers told to stop by the last event.
  std::vector<std::string> Aborted() const;
  // Feed entries of the last event.
  std::vector<v1::JobEvent> Feed() const;
  // The jobs' workers, by rank.
  std::vector<std::string> WorkersOf(const JobId& id) const;
  int IdleWorkers() const;

 private:
  State state_;
  std::vector<v1::DurableEvent> log_;
  Actions actions_;
  int64_t now_ = 1'000'000;
};

// The state that `log` makes.
State ReplayLog(const std::vector<v1::DurableEvent>& log);

}  // namespace sherd
