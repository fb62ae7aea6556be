#include "common/printable_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace sherd {
namespace {

// Room for the mark, whatever the number in it.
constexpr size_t kMarkBytes = 48;
constexpr unsigned char kDelete = 0x7F;
// First byte of U+0080 to U+00BF in UTF-8; up to U+009F they are control characters.
constexpr unsigned char kLatinLead = 0xC2;
constexpr unsigned char kLastLatinControl = 0x9F;

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Of the character at the beginning of `text`, which is not empty.
size_t BytesOfCharacter(absl::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && Continues(text[bytes])) ++bytes;
  return bytes;
}

// One whole character, or its spelling.
std::string Spell(absl::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first == '\n') return "\\n";
  if (first == '\r') return "\\r";
  if (first == '\t') return " ";
  if (first < ' ' || first == kDelete) return absl::StrFormat("\\x%02x", first);
  if (first == kLatinLead && character.size() == 2) {
    const auto second = static_cast<unsigned char>(character[1]);
    if (second <= kLastLatinControl) return absl::StrFormat("\\u%04x", second);
  }
  return std::string(character);
}

}  // namespace

std::string PrintableText(absl::string_view text, size_t most_bytes) {
  absl::ConsumeSuffix(&text, "\n");
  std::string printable;
  // Where to cut, should the rest not fit.
  size_t kept = 0;
  size_t kept_of_text = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = BytesOfCharacter(text.substr(at));
    printable += Spell(text.substr(at, bytes));
    at += bytes;
    if (printable.size() + kMarkBytes <= most_bytes) {
      kept = printable.size();
      kept_of_text = at;
    }
    if (printable.size() > most_bytes) {
      printable.resize(kept);
      absl::StrAppend(&printable, "… (", text.size() - kept_of_text, " more bytes left out)");
      break;
    }
  }
  return printable;
}

}  // namespace sherd
