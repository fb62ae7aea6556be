#include "worker/data/data_command.h"

#include <iostream>

#include "common/command_docs.h"
#include "common/file_commands.h"

namespace sherd {
namespace {

int Run(const DataSubcommand& chosen) {
  const std::string name = "sherd data " + chosen.command->get_name();
  const absl::Status status = chosen.run();
  if (!status.ok()) {
    std::cerr << name << ": " << AsToldHere(status.message()) << std::endl;
  }
  // A full disk or a closed pipe must not pass for success.
  if (!std::cout.flush()) {
    std::cerr << name << ": cannot write to the standard output" << std::endl;
    return kFileCommandOther;
  }
  return status.ok() ? 0 : kFileCommandOther;
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
    return app.exit(error) == 0 ? 0 : kFileCommandUsage;
  }
  for (const DataSubcommand& one : commands) {
    if (one.command->parsed()) return Run(one);
  }
  return kFileCommandUsage;
}

}  // namespace sherd
