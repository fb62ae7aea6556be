#pragma once

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

namespace sherd {

// The regular expressions that cut text into pieces, each of which is tokenized alone. They are
// matched by hand: that is exact for every code point (a library would bring Unicode tables of its
// own version), takes a time linear in the text, and is fast.
enum class SplitPattern {
  kGpt2,             // 's|'t|… | ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kLlama3,           // (?i:'s|'t|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|…
  kLlama3OneNumber,  // the same with \p{N}
};

// The pattern with exactly this text; none for any other.
std::optional<SplitPattern> FindSplitPattern(absl::string_view regex);

// Where the piece ends that begins at `begin` < text.size(); greater than `begin`. The pieces that
// follow each other from 0 on are those of the regular expression: it leaves nothing out.
size_t PieceEnd(SplitPattern pattern, absl::string_view text, size_t begin);

// Whether the pieces of text[0, at) and text[at, …) together are those of the whole text, whatever
// lies farther away: one may be tokenized without the other. 0 < at < text.size(). True only at a
// space between letters and, unless `only_before_spaces`, after a newline between others than
// spaces.
bool IsCut(absl::string_view text, size_t at, bool only_before_spaces);

}  // namespace sherd
