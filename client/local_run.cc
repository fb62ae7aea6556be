#include "client/local_run.h"

#include <unistd.h>

#include <utility>

#include "absl/time/clock.h"
#include "client/complain.h"
#include "client/exit_codes.h"
#include "client/job_client.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
// A coordinator ends a job whose workers are gone well within this.
constexpr absl::Duration kVerdictGrace = absl::Seconds(15);
// For a reader of the output that takes nothing, after a signal.
constexpr absl::Duration kReaderGrace = absl::Milliseconds(500);

}  // namespace

LocalRun::LocalRun(const RunOptions& options, const JobFile& file, const RunPlan& plan,
                   Janitor& janitor, Interrupts& interrupts, StandardOutput& output,
                   Progress& progress)
    : file_(file),
      plan_(plan),
      janitor_(janitor),
      interrupts_(interrupts),
      output_(output),
      progress_(progress),
      cluster_({options.workers, plan.data_root, plan.output_root, plan.log_directory,
                NormalizeJobSpec(plan.spec).elastic().failure_detection_ms()},
               janitor, interrupts) {}

LocalRun::~LocalRun() = default;

absl::Status LocalRun::Execute() {
  interrupts_.Listen(
      {[this] { OnFirstSignal(); }, [this] { QuitAtOnce(); }, [this] { CheckProcesses(); }});
  const absl::Status followed = StartAndFollow();
  cluster_.Stop();
  interrupts_.StopListening();
  std::thread canceller;
  {
    absl::MutexLock lock(&mutex_);
    canceller = std::move(canceller_);
  }
  if (canceller.joinable()) canceller.join();
  {
    absl::MutexLock lock(&mutex_);
    if (!not_cancelled_.ok()) Complain(not_cancelled_);
  }
  if (interrupts_.interrupted() && !progress_.done()) return absl::CancelledError("cancelled");
  return followed;
}

absl::Status LocalRun::StartAndFollow() {
  SHERD_RETURN_IF_ERROR(cluster_.StartCoordinator());
  const auto client = std::make_shared<JobClient>(cluster_.address());
  SHERD_RETURN_IF_ERROR(cluster_.StartWorkers(*client));
  const absl::StatusOr<v1::Job> job = client->Submit(plan_.spec, NewRequestId());
  if (!job.ok()) {
    refused_ = job.status().code() != absl::StatusCode::kUnavailable;
    return AtTheirLines(job.status(), file_);
  }
  {
    absl::MutexLock lock(&mutex_);
    client_ = client;
    job_id_ = job->id();
    workers_seen_ = absl::Now();
  }
  // A signal that came while there was no job to cancel.
  if (interrupts_.interrupted()) CancelJob();
  const absl::Status watched =
      client->Watch(job->id(), kPatience,
                    {[this](const v1::JobEvent& event) { progress_.Show(event); },
                     [this](const std::string& sentence) { progress_.Say(sentence); }});
  absl::MutexLock lock(&mutex_);
  client_.reset();
  return casualty_.ok() ? watched : casualty_;
}

void LocalRun::CancelJob() {
  std::shared_ptr<JobClient> client;
  std::string job_id;
  {
    absl::MutexLock lock(&mutex_);
    client = client_;
    job_id = job_id_;
  }
  // Without a job, whoever starts one looks at the interrupts.
  if (client == nullptr) return;
  // A job that ended meanwhile needs no cancelling; a coordinator that is gone ends the watch.
  if (const absl::StatusOr<v1::Job> cancelled = client->Cancel(job_id); !cancelled.ok()) {
    absl::MutexLock lock(&mutex_);
    not_cancelled_ = cancelled.status();
  }
}

void LocalRun::OnFirstSignal() {
  output_.LosePatience(kReaderGrace);
  {
    absl::MutexLock lock(&mutex_);
    interrupted_at_ = absl::Now();
    canceller_ = std::thread([this] { CancelJob(); });
  }
  SayIfHeard("\ncancelling; once more to quit at once\n");
}

void LocalRun::QuitAtOnce() {
  cluster_.Kill();
  janitor_.Finish();
  _exit(static_cast<int>(ExitCode::kCancelled));
}

void LocalRun::CheckProcesses() {
  const absl::Status coordinator = cluster_.CheckCoordinator();
  const absl::Status workers = cluster_.CheckWorkers();
  absl::MutexLock lock(&mutex_);
  if (client_ == nullptr || !casualty_.ok()) return;
  if (workers.ok()) workers_seen_ = absl::Now();
  const bool hopeless = absl::Now() - workers_seen_ > kVerdictGrace;
  const bool unheard = absl::Now() - interrupted_at_ > kVerdictGrace;
  if (coordinator.ok() && !hopeless && !unheard) return;
  casualty_ = !coordinator.ok() ? coordinator
              : hopeless        ? workers
                                : absl::CancelledError("cancelled without the coordinator's word");
  client_->StopWatching();
}

}  // namespace sherd
