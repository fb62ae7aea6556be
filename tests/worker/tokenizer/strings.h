#pragma once

#include <cstdint>
#include <string>

namespace sherd {

// Text `index` of a seed: that of tests/golden/tokenizer/strings.py, byte for byte. Words, spaces,
// emoji, runs of one character, contractions, digits, scripts of all planes, control characters and
// special tokens.
std::string DrawnText(uint64_t seed, uint64_t index);

}  // namespace sherd
