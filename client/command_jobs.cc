#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/job_client.h"
#include "client/job_file.h"
#include "client/print.h"
#include "client/render_json.h"
#include "client/render_text.h"

namespace sherd {
namespace {

// Calls the coordinator and shows what it answered.
template <typename Call, typename Show>
ExitCode Ask(const Connection& connection, Call call, Show show) {
  if (absl::Status usable = CheckAddress(connection.coordinator); !usable.ok()) {
    return Complain(usable);
  }
  JobClient client(connection.coordinator, connection.security);
  const auto answer = call(client);
  if (!answer.ok()) return Complain(answer.status());
  return show(*answer);
}

}  // namespace

ExitCode SubmitCommand(const Connection& connection, const std::string& job_file,
                       const std::vector<std::string>& overrides, const std::string& request_id) {
  const absl::StatusOr<JobFile> file = ReadJobFile(job_file, overrides);
  if (!file.ok()) return ComplainAboutUse(file.status());
  if (absl::Status valid = CheckJobFile(*file); !valid.ok()) return Complain(valid);
  return Ask(
      connection,
      [&](JobClient& client) -> absl::StatusOr<v1::Job> {
        absl::StatusOr<v1::Job> job =
            client.Submit(file->spec, request_id.empty() ? NewRequestId() : request_id);
        if (job.ok()) return job;
        return AtTheirLines(job.status(), *file);
      },
      [&](const v1::Job& job) {
        Print(connection.format, JobJson(job), absl::StrCat(job.id(), "\n"));
        return ExitCode::kSuccess;
      });
}

ExitCode ListCommand(const Connection& connection) {
  return Ask(
      connection, [](JobClient& client) { return client.ListJobs(); },
      [&](const std::vector<v1::Job>& jobs) {
        Print(connection.format, JobsJson(jobs), JobsTable(jobs));
        return ExitCode::kSuccess;
      });
}

ExitCode GetCommand(const Connection& connection, const std::string& job_id) {
  return Ask(
      connection, [&](JobClient& client) { return client.GetJob(job_id); },
      [&](const v1::Job& job) {
        Print(connection.format, JobJson(job), JobText(job));
        return ExitCodeOf(job.state());
      });
}

ExitCode CancelCommand(const Connection& connection, const std::string& job_id) {
  return Ask(
      connection, [&](JobClient& client) { return client.Cancel(job_id); },
      [&](const v1::Job& job) {
        Print(connection.format, JobJson(job), absl::StrCat(job.id(), " is being cancelled\n"));
        return ExitCode::kSuccess;
      });
}

ExitCode WorkersCommand(const Connection& connection) {
  return Ask(
      connection, [](JobClient& client) { return client.ListWorkers(); },
      [&](const std::vector<v1::Worker>& workers) {
        Print(connection.format, WorkersJson(workers), WorkersTable(workers));
        return ExitCode::kSuccess;
      });
}

ExitCode DrainCommand(const Connection& connection, const std::string& worker_id) {
  return Ask(
      connection, [&](JobClient& client) { return client.Drain(worker_id); },
      [&](const v1::Worker& worker) {
        Print(connection.format, WorkerJson(worker),
              absl::StrCat(worker.id(), " is leaving; `sherd workers` shows it until it has\n"));
        return ExitCode::kSuccess;
      });
}

}  // namespace sherd
