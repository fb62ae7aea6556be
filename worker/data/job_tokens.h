#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_spec.h"
#include "sherd/v1/job.pb.h"
#include "worker/data/token_source.h"

namespace sherd {

// Of a job's data.format; text for one that is not known.
inline TokenFormat TokenFormatOf(v1::DataFormat format) {
  switch (format) {
    case v1::DATA_FORMAT_JSONL:
      return TokenFormat::kJsonl;
    case v1::DATA_FORMAT_TOKENS_U16:
      return TokenFormat::kTokensU16;
    case v1::DATA_FORMAT_LLMC:
      return TokenFormat::kLlmc;
    case v1::DATA_FORMAT_MEGATRON:
      return TokenFormat::kMegatron;
    default:
      return TokenFormat::kText;
  }
}

// Whether the files hold tokens as they are: ids, or text whose bytes are tokens.
inline bool HoldsTokens(const v1::DataSpec& data) {
  if (data.format() == v1::DATA_FORMAT_PROMPT_COMPLETION) return false;
  const bool bytes = data.tokenizer().empty() || data.tokenizer() == "bytes";
  return bytes || !IsText(data.format());
}

// What some entries of data.train or data.eval name.
inline TokenFiles TokenFilesOf(const std::vector<std::string>& patterns, v1::DataFormat format,
                               int64_t vocab, const std::string& root) {
  return {root, patterns, TokenFormatOf(format), vocab};
}

// The entries of data.train that are one source of sequences each: every one by itself where they
// have weights, else all together.
inline std::vector<std::vector<std::string>> TrainSources(const v1::DataSpec& data) {
  std::vector<std::vector<std::string>> sources;
  if (data.train_weights().empty()) return {{data.train().begin(), data.train().end()}};
  for (const std::string& entry : data.train()) sources.push_back({entry});
  return sources;
}

}  // namespace sherd
