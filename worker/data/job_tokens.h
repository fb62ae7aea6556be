#pragma once

#include <string>

#include "google/protobuf/repeated_ptr_field.h"
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

// What data.train or data.eval names.
inline TokenFiles TokenFilesOf(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                               v1::DataFormat format, int64_t vocab, const std::string& root) {
  return {root, {patterns.begin(), patterns.end()}, TokenFormatOf(format), vocab};
}

}  // namespace sherd
