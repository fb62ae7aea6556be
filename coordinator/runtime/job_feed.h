#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "common/ids.h"
#include "coordinator/store/event_log.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// A job's log keeps this many lines of at most this many bytes; what comes later is dropped, and
// the last line says so. The feed stays gapless for watchers that resume, so nothing is taken out
// again.
inline constexpr int64_t kLogLinesPerJob = 10'000;
inline constexpr int64_t kLogLineBytes = 4096;

// How far a job is known to be.
struct Progress {
  int64_t step = 0;
  double loss = 0;
  // How long the last step took.
  double step_ms = 0;
  // Of the last evaluation.
  int64_t eval_step = 0;
  friend bool operator==(const Progress&, const Progress&) = default;
};

// The newest entries of a job's feed that say how it does. Without those of an earlier life of the
// coordinator, but for the step.
struct Latest {
  std::optional<v1::StepReport> step;
  std::optional<v1::EpochReport> epoch;
  // Peak memory by rank of that epoch.
  std::map<int32_t, v1::LedgerLine> peaks;
};

// Numbers the entries of each job's feed. Stores nothing itself. One thread.
class JobFeed {
 public:
  // After a restart.
  void Restore(const FeedSummary& summary);
  // The entry with its number, to be stored; nothing when the job's log is full.
  std::optional<v1::JobEvent> Add(v1::JobEvent entry);

  // Of a job that is forgotten.
  void Drop(const JobId& job) { jobs_.erase(job); }

  int64_t LastSequence(const JobId& job) const;
  Progress ProgressOf(const JobId& job) const;
  // Null when nothing was published yet. Valid until the next call that changes the feed.
  const Latest* LatestOf(const JobId& job) const;

 private:
  struct Entry {
    int64_t last_sequence = 0;
    int64_t log_lines = 0;
    Progress progress;
    Latest latest;
  };
  std::map<JobId, Entry> jobs_;
};

}  // namespace sherd
