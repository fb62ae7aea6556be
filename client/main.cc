// sherd: submits, follows and runs training jobs. docs/job-file.md says what a job is.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/standard_output.h"
#include "common/command_docs.h"
#include "common/rpc/security.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// What the command line says; the command that was chosen uses its part.
struct CommandLine {
  Connection connection;
  std::string format = "table";
  std::string job_file;
  std::string job_id;
  std::string worker_id;
  std::vector<std::string> overrides;
  std::string request_id;
  std::optional<int> rank;
  std::string shell;
  TopOptions top;
  RunOptions run;
  PlanFlags plan;
  // Of a command that the worker program has.
  std::vector<std::string> remaining;
};

// What needs the model, the files of checkpoints or training data; the worker program has them.
constexpr std::pair<const char*, const char*> kWorkerCommands[] = {
    {"sample", "Generate text from the weights of a job"},
    {"eval", "Evaluate the weights of a job, or a checkpoint, on data"},
    {"checkpoints", "List or verify the checkpoints that jobs have left"},
    {"import", "Make a checkpoint out of a GPT-2 or Llama folder of the common Python stack"},
    {"export", "Make a folder that the common Python stack loads out of a checkpoint"},
    {"data", "Tokenize text, and show what files of training data hold"}};

void AddFormat(CLI::App& command, CommandLine& line) {
  command.add_option("-o,--output", line.format, "table, json or yaml")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->option_text("FORMAT");
}

OutputFormat FormatFromName(const std::string& name) {
  if (name == "json") return OutputFormat::kJson;
  return name == "yaml" ? OutputFormat::kYaml : OutputFormat::kTable;
}

CLI::App& AddRemote(CLI::App& app, const char* name, const char* help, CommandLine& line) {
  CLI::App& command = *app.add_subcommand(name, help);
  command
      .add_option("--coordinator", line.connection.coordinator,
                  "The coordinator (default: the environment's SHERD_COORDINATOR)")
      ->envname("SHERD_COORDINATOR")
      ->option_text("HOST:PORT");
  DeclareCallerSecurity(command, line.connection.security);
  AddFormat(command, line);
  return command;
}

CLI::Option* AddJobFile(CLI::App& command, CommandLine& line) {
  command.add_option("--set", line.overrides, "Overrides a key: train.steps=20; may be repeated")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
  return command.add_option("JOB.yaml", line.job_file, "The job file")
      ->required()
      ->option_text(" ");
}

void AddJobId(CLI::App& command, CommandLine& line) {
  command.add_option("JOB", line.job_id, "The job's id, as `sherd list` shows it")
      ->required()
      ->option_text(" ");
}

// In the words of a job file's values.
std::string CheckWhole(const std::string& text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::StrCat("'", text, "' must be a whole number, as in 4");
  }
  if (value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max())
    return "";
  return absl::StrCat(value, " is out of range");
}

void AddRun(CLI::App& app, CommandLine& line) {
  CLI::App& run = *app.add_subcommand("run", "Train on this machine: start workers, follow, stop");
  AddJobFile(run, line);
  run.add_option("--workers", line.run.workers, "Worker processes")
      ->required()
      ->check(CheckWhole)
      ->option_text("N");
  run.add_option("--out", line.run.out, "Where logs and weights go (default: out/NAME)")
      ->option_text("DIR");
  run.add_option("--data-root", line.run.data_root,
                 "Data paths start here and may not leave it (default: they start at the present "
                 "directory and may name any file)")
      ->option_text("DIR");
  AddFormat(run, line);
}

void AddPlan(CLI::App& app, CommandLine& line) {
  CLI::App& plan = *app.add_subcommand("plan", "Predict what a job needs and sends; runs nothing");
  PlanFlags& flags = line.plan;
  const auto add = [&](const char* name, std::optional<std::string>& value, const char* text,
                       const char* help) { plan.add_option(name, value, help)->option_text(text); };
  AddJobFile(plan, line)->required(false);
  add("--workers", flags.workers, "N", "How many workers train");
  plan.add_flag("--compare", flags.compare, "All strategies side by side, and which to take");
  plan.add_flag("--explain", flags.explain, "The ordered operations of a step with their bytes");
  add("--rank", flags.rank, "R", "That rank alone, with its groups and its shard of every unit");
  add("--device-memory", flags.device_memory, "SIZE", "What a worker's device holds, as in 80GiB");
  add("--host-memory", flags.host_memory, "SIZE", "What a host of CPU workers holds");
  add("--threads", flags.threads, "K", "Compute threads of a worker (default: 1)");
  add("--workers-per-host", flags.workers_per_host, "K", "Workers that share it (default: all)");
  add("--params", flags.params, "N", "Instead of a job file: so many parameters, as in 7e9");
  add("--strategy", flags.strategy, "NAME", "With --params: ddp, zero1, zero2, zero3, hybrid");
  add("--shard-group", flags.shard_group, "K", "With hybrid: ranks that share one copy");
  add("--zero1-gradients", flags.zero1_gradients, "FLOW", "reduce_scatter or all_reduce");
  add("--reshard-after-forward", flags.reshard_after_forward, "BOOL", "false: zero3 keeps them");
  add("--rounds", flags.rounds, "A", "With --params: micro-batches a rank and step (default: 1)");
  add("--compute", flags.compute, "TYPE", "With --params: bf16 (the default) or fp32");
  add("--grad", flags.grad, "TYPE", "With --params: type of gradients (default: as --compute)");
  add("--profile", flags.profile, "NAME", "Cost model of the estimates: cpu (the default), h100");
  add("--flops", flags.flops, "F", "FLOP/s of a rank");
  add("--bandwidth", flags.bandwidth, "SIZE", "Bytes a second that a rank sends, as in 50GB");
  add("--message-seconds", flags.message_seconds, "S",
      "Time that a message takes beside its bytes");
  add("--optimizer-seconds", flags.optimizer_seconds, "S", "Time of AdamW on one parameter");
  add("--overlap", flags.overlap, "BOOL", "Whether communication runs beside compute");
  AddFormat(plan, line);
}

void AddCommands(CLI::App& app, CommandLine& line) {
  AddRun(app, line);
  AddPlan(app, line);
  CLI::App& submit = AddRemote(app, "submit", "Queue a job and print its id", line);
  AddJobFile(submit, line);
  submit
      .add_option("--request-id", line.request_id,
                  "Submitting again with the same id returns the same job")
      ->option_text("ID");
  AddRemote(app, "list", "List the jobs, newest first", line);
  AddJobId(AddRemote(app, "get", "Show a job; its state is the exit code", line), line);
  AddJobId(AddRemote(app, "describe", "Show all of a job: layout, epochs, last events", line),
           line);
  AddJobId(AddRemote(app, "watch", "Follow a job to its end", line), line);
  CLI::App& logs = AddRemote(app, "logs", "Follow what a job's ranks say", line);
  AddJobId(logs, line);
  logs.add_option("--rank", line.rank, "Of this rank only")->check(CheckWhole)->option_text("R");
  AddJobId(AddRemote(app, "cancel", "Cancel a job", line), line);
  AddRemote(app, "workers", "List the workers", line);
  CLI::App& top = AddRemote(app, "top", "Watch jobs, ranks, memory, speed and recoveries", line);
  top.add_option("--interval", line.top.interval, "Between two looks")
      ->capture_default_str()
      ->option_text("TIME");
  top.add_option("--count", line.top.count, "So many looks (default: until Ctrl-C)")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->option_text("N");
  AddRemote(app, "drain", "Have a worker leave when its work has moved to others", line)
      .add_option("WORKER", line.worker_id, "The worker's id, as `sherd workers` shows it")
      ->required()
      ->option_text(" ");
  for (const auto& [name, help] : kWorkerCommands) {
    app.add_subcommand(name, help)->prefix_command()->set_help_flag();
  }
  app.add_subcommand("completion", "Print what has a shell complete commands and options")
      ->add_option("SHELL", line.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->option_text(" ");
}

ExitCode Dispatch(const std::string& command, const CommandLine& line, StandardOutput& output) {
  const Connection& connection = line.connection;
  if (command == "run") {
    // What the user has for a cluster does not concern the one that this starts.
    for (const char* variable : kSecurityVariables) unsetenv(variable);
    unsetenv("SHERD_TOKENS");
    return RunCommand(line.run, output);
  }
  if (command == "plan") return PlanCommand(line.plan, connection.format);
  if (command == "submit") {
    return SubmitCommand(connection, line.job_file, line.overrides, line.request_id);
  }
  if (command == "list") return ListCommand(connection);
  if (command == "get") return GetCommand(connection, line.job_id);
  if (command == "describe") return DescribeCommand(connection, line.job_id);
  if (command == "watch") return WatchCommand(connection, line.job_id);
  if (command == "logs") return LogsCommand(connection, line.job_id, line.rank);
  if (command == "cancel") return CancelCommand(connection, line.job_id);
  if (command == "workers") return WorkersCommand(connection);
  if (command == "top") return TopCommand(connection, line.top);
  if (command == "drain") return DrainCommand(connection, line.worker_id);
  return WorkerCommand(command, line.remaining);
}

// "sherd sbmit" deserves better than "not expected".
bool SuggestCommand(const CLI::App& app, const std::string& word) {
  std::vector<absl::string_view> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return false;
    names.push_back(command->get_name());
  }
  const std::string nearest = Nearest(word, names);
  std::cerr << "unknown command '" << word << "'"
            << (nearest.empty() ? "" : "; did you mean '" + nearest + "'?")
            << "\nRun with --help for the commands." << std::endl;
  return true;
}

int Main(int argc, char** argv) {
  // Errors are told once, in a sentence of ours; who debugs gRPC sets the variable.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  CommandLine line;
  CLI::App app("Trains transformer language models across many workers.", "sherd");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sherd " SHERD_VERSION);
  AddCommands(app, line);
  AddManual(app);
  if (argc > 1 && argv[1][0] != '-' && SuggestCommand(app, argv[1])) {
    return static_cast<int>(ExitCode::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  const CLI::App& command = *app.get_subcommands().front();
  line.remaining = command.remaining();
  line.connection.format = FormatFromName(line.format);
  line.run.format = line.connection.format;
  line.run.job_file = line.job_file;
  line.run.overrides = line.overrides;
  line.plan.job_file = line.job_file;
  line.plan.overrides = line.overrides;
  line.run.program = argv[0];
  StandardOutput output;
  if (command.get_name() == "completion") {
    std::cout << CompletionScript(app, line.shell).value() << std::flush;
    return static_cast<int>(std::cout ? ExitCode::kSuccess : ExitCode::kOther);
  }
  const ExitCode code = Dispatch(command.get_name(), line, output);
  // A full disk or a closed pipe must not pass for success.
  if (!std::cout.flush()) {
    std::cerr << "cannot write to the standard output" << std::endl;
    return static_cast<int>(code == ExitCode::kSuccess ? ExitCode::kOther : code);
  }
  return static_cast<int>(code);
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) { return sherd::Main(argc, argv); }
