#pragma once

#include <CLI/CLI.hpp>

#include "worker/data/data_command.h"

namespace sherd {

// `sherd data tokenize --tokenizer PATH --out FILE FILES…`: turns text into a token file. The
// summary goes to stdout, progress to stderr.
DataSubcommand DeclareDataTokenize(CLI::App& app);

}  // namespace sherd
