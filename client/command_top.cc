#include <unistd.h>

#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/interrupts.h"
#include "client/job_client.h"
#include "client/render_top.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// Beside all that have not ended.
constexpr size_t kMostEnded = 5;
constexpr char kClear[] = "\x1b[H\x1b[2J";

bool HasEnded(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

absl::StatusOr<Cluster> Look(JobClient& client) {
  Cluster cluster;
  SHERD_ASSIGN_OR_RETURN(cluster.workers, client.ListWorkers());
  SHERD_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, client.ListJobs());
  std::vector<v1::Job> ended;
  for (const v1::Job& job : jobs) {
    if (!HasEnded(job)) {
      absl::StatusOr<v1::Job> whole = client.GetJob(job.id());
      // It may have been forgotten meanwhile.
      if (absl::IsNotFound(whole.status())) continue;
      SHERD_RETURN_IF_ERROR(whole.status());
      cluster.jobs.push_back(*std::move(whole));
    } else if (ended.size() < kMostEnded) {
      ended.push_back(job);
    }
  }
  cluster.jobs.insert(cluster.jobs.end(), ended.begin(), ended.end());
  return cluster;
}

}  // namespace

ExitCode TopCommand(const Connection& connection, const TopOptions& options) {
  if (absl::Status usable = CheckAddress(connection.coordinator); !usable.ok()) {
    return Complain(usable);
  }
  absl::Duration interval;
  if (!absl::ParseDuration(options.interval, &interval) || interval < absl::Milliseconds(100) ||
      interval > absl::Hours(1)) {
    return ComplainAboutUse(absl::InvalidArgumentError(absl::StrCat(
        "--interval must be between 100ms and 1h, as 2s, not \"", options.interval, "\"")));
  }
  Interrupts interrupts;
  interrupts.Listen({[] {}, [] { _exit(static_cast<int>(ExitCode::kSuccess)); }, [] {}});
  JobClient client(connection.coordinator, connection.security);
  const bool screen = connection.format == OutputFormat::kTable && isatty(STDOUT_FILENO) != 0;
  bool said = false;
  for (int64_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    if (shown > 0 && interrupts.InterruptedWithin(interval)) break;
    const absl::StatusOr<Cluster> cluster = Look(client);
    if (!cluster.ok()) {
      // A coordinator that restarts is waited for, one that never was there is not.
      if (shown == 0 || !absl::IsUnavailable(cluster.status())) return Complain(cluster.status());
      if (!said) std::cerr << cluster.status().message() << std::endl;
      said = true;
      continue;
    }
    said = false;
    switch (connection.format) {
      case OutputFormat::kTable:
        std::cout << (screen ? kClear : shown > 0 ? "\n" : "") << TopText(*cluster) << std::flush;
        break;
      case OutputFormat::kJson:
        std::cout << ToLine(TopJson(*cluster)) << std::endl;
        break;
      case OutputFormat::kYaml:
        std::cout << "---\n" << ToYaml(TopJson(*cluster)) << std::flush;
        break;
    }
    if (!std::cout) return ExitCode::kOther;  // nobody reads any more
  }
  return ExitCode::kSuccess;
}

}  // namespace sherd
