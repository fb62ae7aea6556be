#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sherd {

// A part of `sherd data`, as in `sherd data info`.
struct DataSubcommand {
  CLI::App* command = nullptr;
  // Once the command line was parsed and names it. Writes to stdout; who calls it tells its error.
  std::function<absl::Status()> run;
};

// Adds a sub-command with its flags to the command line.
using DeclareDataSubcommand = DataSubcommand (*)(CLI::App& app);

// The program `sherd data SUBCOMMAND …`, argv[0] being its name. Returns the exit code: 0, 2 for
// bad usage, 1 for anything else.
int DataMain(int argc, char** argv, const std::vector<DeclareDataSubcommand>& declare);

}  // namespace sherd
