#include "worker/checkpoint/checkpoints_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/command_docs.h"
#include "common/file_commands.h"
#include "worker/checkpoint/list.h"

namespace sherd {
namespace {

constexpr int kUsage = 2;
constexpr int kOther = 1;

struct CommandLine {
  std::string directory;
  std::string format = "table";
};

CLI::App& AddCommand(CLI::App& app, const char* name, const char* help, CommandLine& line) {
  CLI::App& command = *app.add_subcommand(name, help);
  command
      .add_option("DIR", line.directory, "A job's checkpoint.dir, or one checkpoint's directory")
      ->required()
      ->option_text(" ");
  command.add_option("-o,--output", line.format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->option_text("FORMAT");
  return command;
}

int Print(const CommandLine& line, Look look) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const auto checkpoints = ListCheckpoints(*files, line.directory, look);
  if (!checkpoints.ok()) {
    std::cerr << "sherd checkpoints: " << AsToldHere(checkpoints.status().message()) << std::endl;
    return kOther;
  }
  // Paths need not be UTF-8.
  std::cout << (line.format == "json"
                    ? CheckpointsJson(*checkpoints)
                              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                          "\n"
                    : CheckpointsTable(*checkpoints));
  if (!std::cout.flush()) {
    std::cerr << "sherd checkpoints: cannot write to the standard output" << std::endl;
    return kOther;
  }
  const bool all_sound = std::all_of(checkpoints->begin(), checkpoints->end(),
                                     [](const auto& one) { return one.state.ok(); });
  return all_sound || look == Look::kSizes ? 0 : kOther;
}

}  // namespace

int CheckpointsMain(int argc, char** argv) {
  CommandLine line;
  CLI::App app("Shows the checkpoints that jobs have left.", "sherd checkpoints");
  app.require_subcommand(1);
  AddCommand(app, "list", "Every checkpoint, and whether all its files are there", line);
  const CLI::App& verify =
      AddCommand(app, "verify",
                 "Read every byte and compare all checksums; exit code 1 if any is wrong", line);
  AddManual(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return Print(line, verify.parsed() ? Look::kEveryByte : Look::kSizes);
}

}  // namespace sherd
