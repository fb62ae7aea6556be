#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/interrupts.h"
#include "client/janitor.h"
#include "client/job_file.h"
#include "client/local_cluster.h"
#include "client/progress.h"
#include "client/run_plan.h"
#include "client/standard_output.h"

namespace sherd {

class JobClient;

// One `sherd run`, from the first child process to the last. The first signal cancels the job, the
// second ends everything at once, this process included. Use on the main thread.
class LocalRun {
 public:
  // Everything handed in must outlive this.
  LocalRun(const RunOptions& options, const JobFile& file, const RunPlan& plan, Janitor& janitor,
           Interrupts& interrupts, StandardOutput& output, Progress& progress);
  ~LocalRun();

  // Starts everything, follows the job to its end and stops everything. OK when the job has ended,
  // in whatever state; else what came between, kCancelled for a signal.
  absl::Status Execute();
  // After Execute: whether the coordinator would not take the job, so that no log is worth keeping.
  bool refused() const { return refused_; }

 private:
  absl::Status StartAndFollow() ABSL_LOCKS_EXCLUDED(mutex_);
  void CancelJob() ABSL_LOCKS_EXCLUDED(mutex_);
  // On the thread of the interrupts.
  void OnFirstSignal() ABSL_LOCKS_EXCLUDED(mutex_);
  [[noreturn]] void QuitAtOnce();
  // Gives the job up when the processes that it needs are gone, or do not heed a signal.
  void CheckProcesses() ABSL_LOCKS_EXCLUDED(mutex_);

  const JobFile& file_;
  const RunPlan& plan_;
  Janitor& janitor_;
  Interrupts& interrupts_;
  StandardOutput& output_;
  Progress& progress_;
  LocalCluster cluster_;
  bool refused_ = false;

  absl::Mutex mutex_;
  // While there is a job to follow.
  std::shared_ptr<JobClient> client_ ABSL_GUARDED_BY(mutex_);
  std::string job_id_ ABSL_GUARDED_BY(mutex_);
  // Cancelling takes a call, which must not keep the second signal waiting.
  std::thread canceller_ ABSL_GUARDED_BY(mutex_);
  // Why the job could not be cancelled.
  absl::Status not_cancelled_ ABSL_GUARDED_BY(mutex_);
  absl::Time interrupted_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time workers_seen_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // What ended although it should not have.
  absl::Status casualty_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
