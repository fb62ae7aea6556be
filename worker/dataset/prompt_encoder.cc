#include <algorithm>

#include "worker/dataset/prompt_file.h"

namespace sherd {

PromptEncoder::PromptEncoder(const TextCodec& codec)
    : writer_(codec), start_(codec.Start()), end_(codec.End()) {}

void PromptEncoder::Encode(absl::string_view prompt, absl::string_view completion,
                           PromptLine& line) {
  line.tokens = start_;
  writer_.Append(prompt, line.tokens);
  line.prompt = static_cast<int64_t>(line.tokens.size());
  writer_.Append(completion, line.tokens);
  const bool ended = static_cast<int64_t>(line.tokens.size()) > line.prompt && end_.has_value() &&
                     line.tokens.back() == *end_;
  if (end_.has_value() && !ended) line.tokens.push_back(*end_);
}

int64_t PredictedTokens(int64_t prompt, int64_t length, int64_t seq_len) {
  // Place i predicts token i + 1.
  const int64_t first = std::max<int64_t>(prompt - 1, 0);
  return std::max<int64_t>(0, std::min(length - 1, seq_len) - first);
}

}  // namespace sherd
