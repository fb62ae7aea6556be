#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/token_file.h"

namespace sherd {

// What format a file looks like: Megatron's by a file of its name with .idx, llm.c's by its magic
// number, JSON lines by the name's ending (.jsonl, .ndjson), 16-bit tokens by the ending .bin or a
// NUL byte among the first, text otherwise. For people who look; jobs say their format. Errors of
// OpenBelow.
absl::StatusOr<TokenFormat> GuessFormat(const std::string& root, const std::string& path);

}  // namespace sherd
