#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace sherd {

// What a code point is to the reference implementation's regular expressions.
enum CodePointClass : uint8_t {
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 4,   // \s
  kWord = 8,    // \w, of its second engine, which judges added tokens
};

// The character at some place of a text: how many bytes it has, and the bits of its classes.
struct Character {
  uint8_t bytes = 0;
  uint8_t classes = 0;

  bool Is(uint8_t any_of) const { return (classes & any_of) != 0; }
  // [^\s\p{L}\p{N}]
  bool IsOther() const { return !Is(kLetter | kNumber | kSpace); }
};

// Reads text of any bytes: one that belongs to no well-formed UTF-8 sequence (RFC 3629) is a
// character of its own and of no class, as a control character is. Thread-safe.
class CharacterReader {
 public:
  // The one and only; made at the first call.
  static const CharacterReader& Get();

  // The character that begins at `at` < text.size().
  Character At(absl::string_view text, size_t at) const {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 0x80) return {1, classes_[lead]};
    return AtLead(text, at);
  }
  // The character that ends before `end` > 0.
  Character Before(absl::string_view text, size_t end) const;

 private:
  CharacterReader();
  Character AtLead(absl::string_view text, size_t at) const;

  // By code point.
  std::vector<uint8_t> classes_;
};

}  // namespace sherd
