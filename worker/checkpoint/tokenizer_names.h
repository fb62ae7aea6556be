#pragma once

namespace sherd {

// What CheckpointInfo::tokenizer is but for the path of a tokenizer.json as the workers saw it.

// Tokens are bytes.
inline constexpr char kBytesTokenizer[] = "bytes";
// Nobody said what the tokens stand for, as for an imported folder without a tokenizer.json.
inline constexpr char kUnknownTokenizer[] = "unknown";

}  // namespace sherd
