#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "worker/tokenizer/json_place.h"
#include "worker/tokenizer/tokenizer.h"

namespace sherd {

// The ids of a vocabulary by its tokens as the file spells them.
using Vocabulary = absl::flat_hash_map<std::string, TokenId>;

// Reads `model` into the tokens, merges and whole words of `model`, and into `vocabulary`.
absl::Status ReadByteLevelModel(const JsonPlace& place, TokenizerModel& model,
                                Vocabulary& vocabulary);

// Reads `added_tokens`, which come on top of `vocabulary`.
absl::Status ReadAddedTokens(const JsonPlace& place, const Vocabulary& vocabulary,
                             TokenizerModel& model);

}  // namespace sherd
