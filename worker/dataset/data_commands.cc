#include "worker/dataset/data_commands.h"

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/data/guess_format.h"
#include "worker/data/jsonl_lines.h"
#include "worker/data/mapped_file.h"
#include "worker/data/token_file.h"
#include "worker/dataset/prompt_file.h"

namespace sherd {
namespace {

bool StartsWithPrompt(const MappedFile& file) {
  std::array<std::string, 2> texts;
  const absl::StatusOr<bool> prompt =
      JsonlLines(file, 0, file.bytes()).NextOf(PromptEncoder::kKeys, absl::MakeSpan(texts));
  if (!prompt.ok() || !*prompt) return false;
  return !JsonlLines(file, 0, file.bytes()).Next(texts[0]).ok();
}

}  // namespace

void AddDataFlags(CLI::App& command, DataFlags& flags) {
  command.add_option("-o,--output", flags.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->option_text("FORMAT");
  std::vector<std::string> names;
  for (const absl::string_view name : TokenFormatNames()) names.emplace_back(name);
  names.emplace_back(kPromptFormat);
  command
      .add_option("--format", flags.format,
                  "As data.format of a job file (default: what the file looks like)")
      ->check(CLI::IsMember(names))
      ->option_text("FORMAT");
  command
      .add_option("--tokenizer", flags.tokenizer,
                  "What makes tokens of prompts and completions, as data.tokenizer of a job file "
                  "(default: bytes)")
      ->option_text("PATH");
}

absl::StatusOr<std::string> GuessDataFormat(const std::string& path) {
  SHERD_ASSIGN_OR_RETURN(const TokenFormat format, GuessFormat("", path));
  if (format == TokenFormat::kJsonl) {
    SHERD_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open("", path));
    if (StartsWithPrompt(file)) return std::string(kPromptFormat);
  }
  return std::string(NameOf(format));
}

absl::Status CheckFlag(absl::string_view flag, const std::string& path, absl::string_view format) {
  if (format == kPromptFormat) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " is for files of format ", kPromptFormat,
                                                 ", but ", path, " is ", format));
}

}  // namespace sherd
