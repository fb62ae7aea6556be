#include "common/terminal_text.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/printable_text.h"
#include "common/utf8.h"

namespace sherd {
namespace {

constexpr size_t kMostSpelledBytes = 64;

// Of the character that begins with `lead`; 1 for what begins none.
size_t BytesAfterLead(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte >= 0xF0) return 4;
  if (byte >= 0xE0) return 3;
  return byte >= 0xC0 ? 2 : 1;
}

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string SpellByte(char byte) {
  return absl::StrFormat("\\x%02x", static_cast<unsigned char>(byte));
}

}  // namespace

std::string TerminalText::Add(absl::string_view bytes) {
  absl::StrAppend(&waiting_, bytes);
  std::string text;
  size_t at = 0;
  while (at < waiting_.size()) {
    const char first = waiting_[at];
    const size_t whole = BytesAfterLead(first);
    size_t there = 1;
    while (there < whole && at + there < waiting_.size() && Continues(waiting_[at + there])) {
      ++there;
    }
    if (there < whole && at + there == waiting_.size()) break;
    const absl::string_view character = absl::string_view(waiting_).substr(at, whole);
    if (first == '\n' || first == '\t') {
      text.push_back(first);
      ++at;
    } else if (there < whole || (first != '\0' && FindInvalidUtf8(character).has_value())) {
      text += SpellByte(first);
      ++at;
    } else {
      text += PrintableText(character, kMostSpelledBytes);
      at += whole;
    }
  }
  waiting_.erase(0, at);
  return text;
}

std::string TerminalText::Finish() {
  std::string text;
  for (const char byte : std::exchange(waiting_, std::string())) text += SpellByte(byte);
  return text;
}

}  // namespace sherd
