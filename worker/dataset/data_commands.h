#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/data_command.h"

namespace sherd {

// `sherd data info FILE…`: what files hold, of which it reads every token.
DataSubcommand DeclareDataInfo(CLI::App& app);
// `sherd data head FILE`: the first tokens of a file.
DataSubcommand DeclareDataHead(CLI::App& app);

// What both take.
struct DataFlags {
  std::string output = "table";
  // As data.format; "": what each file looks like.
  std::string format;
  // Of prompts and completions, as data.tokenizer; "": bytes.
  std::string tokenizer;
};
void AddDataFlags(CLI::App& command, DataFlags& flags);

// The format that is no TokenFormat.
inline constexpr absl::string_view kPromptFormat = "prompt_completion";
// As GuessFormat, by its name; JSON lines of which the first has "prompt" and "completion", and no
// "text", are kPromptFormat. Errors of OpenBelow.
absl::StatusOr<std::string> GuessDataFormat(const std::string& path);

// kInvalidArgument for flags that say nothing of a file of this format.
absl::Status CheckFlag(absl::string_view flag, const std::string& path, absl::string_view format);

}  // namespace sherd
