#pragma once

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/events.pb.h"
#include "worker/checkpoint/file_system.h"
#include "worker/record/figures.h"

namespace sherd {

// Writes what a job tells of its steps and evaluations beside its checkpoints, as metrics.jsonl and
// as an event file of TensorBoard: of each step once, however often the job's ranks die and
// whichever worker leads it. A thread of its own waits for the disk. Thread-safe.
class JobRecord {
 public:
  // Of the epoch `epoch`, in which training goes on after step `last`. `known` are the reports of
  // steps up to it that are still known: what an epoch did not come to write is taken from them.
  // Nothing is written before there is something to write. `files` outlives it.
  JobRecord(FileSystem& files, std::string directory, int64_t epoch, int64_t last,
            std::vector<v1::StepReport> known);
  // Writes what was added, unless writing has failed.
  ~JobRecord();
  JobRecord(const JobRecord&) = delete;

  // Never blocks.
  void Add(const v1::StepReport& report) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(const v1::EvalReport& report) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why nothing is written any more, once; else OK.
  absl::Status TakeFailure() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Put(Figures figures) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next ones; empty at the end.
  std::deque<Figures> Await() ABSL_LOCKS_EXCLUDED(mutex_);

  FileSystem& files_;
  const std::string directory_;
  const int64_t epoch_;
  const int64_t last_;
  const std::vector<v1::StepReport> known_;

  absl::Mutex mutex_;
  std::deque<Figures> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sherd
