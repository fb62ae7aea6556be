#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sherd {

// Byte-level vocabularies spell each byte as one printable character: printable ones of Latin-1 as
// themselves, the others as U+0100 and up in their order ("Ġ" is the space). The bytes that a token
// of UTF-8 spells; none when it holds any other character.
std::optional<std::string> BytesOfSpelling(absl::string_view token);

}  // namespace sherd
