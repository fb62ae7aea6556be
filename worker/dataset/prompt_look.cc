#include "worker/dataset/prompt_look.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/data/jsonl_lines.h"
#include "worker/data/mapped_file.h"

namespace sherd {

absl::Status ReadPrompts(const std::string& path, const TextCodec& codec, int64_t seq_len,
                         absl::FunctionRef<bool(const PromptLine&, int64_t)> each) {
  SHERD_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open("", path));
  PromptEncoder encoder(codec);
  JsonlLines lines(file, 0, file.bytes());
  std::array<std::string, 2> texts;
  PromptLine line;
  for (bool first = true;; first = false) {
    SHERD_ASSIGN_OR_RETURN(const bool found,
                           lines.NextOf(PromptEncoder::kKeys, absl::MakeSpan(texts)));
    if (!found && first) return NoPrompts(path);
    if (!found) return absl::OkStatus();
    encoder.Encode(texts[0], texts[1], line);
    const auto length = static_cast<int64_t>(line.tokens.size());
    const int64_t kept = seq_len > 0 ? std::min(length, seq_len + 1) : length;
    const int64_t counted = PredictedTokens(line.prompt, kept, kept);
    line.tokens.resize(static_cast<size_t>(kept));
    line.prompt = std::min(line.prompt, kept);
    if (!each(line, counted)) return absl::OkStatus();
  }
}

}  // namespace sherd
