#include "worker/tokenizer/code_points.h"

#include <algorithm>

#include "worker/tokenizer/code_point_runs.h"

namespace sherd {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr Character kIllFormed = {1, 0};

}  // namespace

const CharacterReader& CharacterReader::Get() {
  static const CharacterReader reader;
  return reader;
}

CharacterReader::CharacterReader() : classes_(kCodePoints) {
  for (size_t run = 0; run < kCodePointRuns.size(); ++run) {
    const uint32_t end =
        run + 1 < kCodePointRuns.size() ? kCodePointRuns[run + 1] >> 4 : kCodePoints;
    std::fill(classes_.begin() + (kCodePointRuns[run] >> 4), classes_.begin() + end,
              static_cast<uint8_t>(kCodePointRuns[run] & 15));
  }
}

Character CharacterReader::AtLead(absl::string_view text, size_t at) const {
  const auto lead = static_cast<uint8_t>(text[at]);
  const uint8_t bytes = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  if (bytes == 1 || text.size() - at < bytes) return kIllFormed;
  uint32_t code_point = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<uint8_t>(text[at + i]);
    if ((next & 0xC0) != 0x80) return kIllFormed;
    code_point = code_point << 6 | (next & 0x3Fu);
  }
  // Longer than need be, a surrogate, or beyond Unicode.
  if ((bytes == 3 && (code_point < 0x800 || code_point >> 11 == 0xD800 >> 11)) ||
      (bytes == 4 && (code_point < 0x10000 || code_point >= kCodePoints))) {
    return kIllFormed;
  }
  return {bytes, classes_[code_point]};
}

Character CharacterReader::Before(absl::string_view text, size_t end) const {
  text = text.substr(0, end);
  for (size_t bytes = 1; bytes <= std::min<size_t>(end, 4); ++bytes) {
    // Only the first byte of a character is not one of these.
    if ((static_cast<uint8_t>(text[end - bytes]) & 0xC0) == 0x80) continue;
    const Character character = At(text, end - bytes);
    return character.bytes == bytes ? character : kIllFormed;
  }
  return kIllFormed;
}

}  // namespace sherd
