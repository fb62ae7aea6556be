#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/exit_codes.h"
#include "client/plan_request.h"
#include "client/progress.h"
#include "client/standard_output.h"
#include "common/rpc/security.h"

namespace sherd {

// What every command that speaks to a coordinator takes.
struct Connection {
  // "HOST:PORT"; "" when it was not given.
  std::string coordinator;
  SecurityOptions security;
  OutputFormat format = OutputFormat::kTable;
};

// The commands. Data goes to stdout, chatter and errors to stderr.
ExitCode SubmitCommand(const Connection& connection, const std::string& job_file,
                       const std::vector<std::string>& overrides, const std::string& request_id);
ExitCode ListCommand(const Connection& connection);
ExitCode GetCommand(const Connection& connection, const std::string& job_id);
// A job in full: specification, decision, ranks, epochs, the feed's last events. Its state is the
// exit code, as of `get`.
ExitCode DescribeCommand(const Connection& connection, const std::string& job_id);
ExitCode CancelCommand(const Connection& connection, const std::string& job_id);
ExitCode WorkersCommand(const Connection& connection);
// Has a worker leave; does not wait until it has.
ExitCode DrainCommand(const Connection& connection, const std::string& worker_id);
// The feed to the job's end, whose state is the exit code.
ExitCode WatchCommand(const Connection& connection, const std::string& job_id);
// The ranks' log lines alone; those of one rank when `rank` is given.
ExitCode LogsCommand(const Connection& connection, const std::string& job_id,
                     std::optional<int> rank);

struct TopOptions {
  // A duration.
  std::string interval = "2s";
  // So many looks; 0: until it is interrupted.
  int64_t count = 0;
};
// Shows jobs, ranks and workers again and again: on a terminal in place, else one after the other.
ExitCode TopCommand(const Connection& connection, const TopOptions& options);

struct RunOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  int workers = 1;
  // "": ./out/<job name>.
  std::string out;
  // "": paths of the job file start at the present directory, and any file may be read.
  std::string data_root;
  OutputFormat format = OutputFormat::kTable;
  // As the user calls this program.
  std::string program = "sherd";
};
// The first signal has `output` lose its patience.
ExitCode RunCommand(const RunOptions& options, StandardOutput& output);

// What a job, or a number of parameters, needs and sends under a strategy or under all of them.
// Speaks to nobody and reads no file but the job's and config.json of model.from. kOther when it
// does not fit into a limit.
ExitCode PlanCommand(const PlanFlags& flags, OutputFormat format);

// Becomes `sherd-worker COMMAND ARGUMENTS…`, a command that needs what only workers know: "sample",
// "checkpoints", "import", "export" or "data". Returns only when that cannot be started.
ExitCode WorkerCommand(const std::string& command, const std::vector<std::string>& arguments);

}  // namespace sherd
