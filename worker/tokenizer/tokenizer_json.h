#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/tokenizer/tokenizer.h"

namespace sherd {

// What a file may have.
inline constexpr int64_t kMostTokenizerFileBytes = 128 << 20;

// Reads the text of a tokenizer.json. Supported are byte-level byte-pair encodings with the
// pre-tokenisers of the GPT-2 and Llama-3 families (docs/tokenizers.md). kInvalidArgument: what is
// wrong or not supported, and the place in the file, as in "model.merges[17]". Takes memory and
// time in proportion to the text, whatever it claims.
absl::StatusOr<Tokenizer> ParseTokenizer(absl::string_view json);

}  // namespace sherd
