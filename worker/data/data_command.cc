#include "worker/data/data_command.h"

#include <iostream>

#include "absl/strings/str_replace.h"
#include "common/command_docs.h"

namespace sherd {
namespace {

constexpr int kUsage = 2;
constexpr int kOther = 1;

int Run(const DataSubcommand& chosen) {
  const std::string name = "sherd data " + chosen.command->get_name();
  const absl::Status status = chosen.run();
  if (!status.ok()) {
    // Here that is the user's own.
    std::cerr << name << ": "
              << absl::StrReplaceAll(status.message(), {{" on the worker's machine", ""}})
              << std::endl;
  }
  // A full disk or a closed pipe must not pass for success.
  if (!std::cout.flush()) {
    std::cerr << name << ": cannot write to the standard output" << std::endl;
    return kOther;
  }
  return status.ok() ? 0 : kOther;
}

}  // namespace

int DataMain(int argc, char** argv, const std::vector<DeclareDataSubcommand>& declare) {
  CLI::App app("Shows what files of training data hold.", "sherd data");
  app.require_subcommand(1);
  std::vector<DataSubcommand> commands;
  for (const DeclareDataSubcommand one : declare) commands.push_back(one(app));
  AddManual(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  for (const DataSubcommand& one : commands) {
    if (one.command->parsed()) return Run(one);
  }
  return kUsage;
}

}  // namespace sherd
