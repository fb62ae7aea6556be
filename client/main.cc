// sherd: submits, follows and runs training jobs. docs/job-file.md says what a job is.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/standard_output.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// What the command line says; the command that was chosen uses its part.
struct CommandLine {
  Connection connection;
  std::string format = "table";
  std::string job_file;
  std::string job_id;
  std::vector<std::string> overrides;
  std::string request_id;
  std::optional<int> rank;
  RunOptions run;
  std::vector<std::string> sample;
};

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
  AddFormat(command, line);
  return command;
}

void AddJobFile(CLI::App& command, CommandLine& line) {
  command.add_option("JOB.yaml", line.job_file, "The job file")->required()->option_text(" ");
  command.add_option("--set", line.overrides, "Overrides a key: train.steps=20; may be repeated")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
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

void AddCommands(CLI::App& app, CommandLine& line) {
  AddRun(app, line);
  CLI::App& submit = AddRemote(app, "submit", "Queue a job and print its id", line);
  AddJobFile(submit, line);
  submit
      .add_option("--request-id", line.request_id,
                  "Submitting again with the same id returns the same job")
      ->option_text("ID");
  AddRemote(app, "list", "List the jobs, newest first", line);
  AddJobId(AddRemote(app, "get", "Show a job; its state is the exit code", line), line);
  AddJobId(AddRemote(app, "watch", "Follow a job to its end", line), line);
  CLI::App& logs = AddRemote(app, "logs", "Follow what a job's ranks say", line);
  AddJobId(logs, line);
  logs.add_option("--rank", line.rank, "Of this rank only")->check(CheckWhole)->option_text("R");
  AddJobId(AddRemote(app, "cancel", "Cancel a job", line), line);
  AddRemote(app, "workers", "List the workers", line);
  app.add_subcommand("sample", "Generate text from the weights of a job")
      ->prefix_command()
      ->set_help_flag();
}

ExitCode Dispatch(const std::string& command, const CommandLine& line, StandardOutput& output) {
  const Connection& connection = line.connection;
  if (command == "run") return RunCommand(line.run, output);
  if (command == "submit") {
    return SubmitCommand(connection, line.job_file, line.overrides, line.request_id);
  }
  if (command == "list") return ListCommand(connection);
  if (command == "get") return GetCommand(connection, line.job_id);
  if (command == "watch") return WatchCommand(connection, line.job_id);
  if (command == "logs") return LogsCommand(connection, line.job_id, line.rank);
  if (command == "cancel") return CancelCommand(connection, line.job_id);
  if (command == "workers") return WorkersCommand(connection);
  return SampleCommand(line.sample);
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
  CommandLine line;
  CLI::App app("Trains transformer language models across many workers.", "sherd");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sherd " SHERD_VERSION);
  AddCommands(app, line);
  if (argc > 1 && argv[1][0] != '-' && SuggestCommand(app, argv[1])) {
    return static_cast<int>(ExitCode::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  const CLI::App& command = *app.get_subcommands().front();
  line.sample = command.remaining();
  line.connection.format = FormatFromName(line.format);
  line.run.format = line.connection.format;
  line.run.job_file = line.job_file;
  line.run.overrides = line.overrides;
  line.run.program = argv[0];
  StandardOutput output;
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
