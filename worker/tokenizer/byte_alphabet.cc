#include "worker/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace sherd {
namespace {

// Code points of the alphabet lie below.
constexpr size_t kCodePoints = 0x200;

// The byte of each code point; −1 for those of no byte.
constexpr std::array<int16_t, kCodePoints> MakeBytes() {
  std::array<int16_t, kCodePoints> bytes = {};
  for (int16_t& byte : bytes) byte = -1;
  size_t next = 0x100;
  for (int byte = 0; byte < 0x100; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    bytes[printable ? static_cast<size_t>(byte) : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}
constexpr std::array<int16_t, kCodePoints> kBytes = MakeBytes();

}  // namespace

std::optional<std::string> BytesOfSpelling(absl::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    uint32_t code_point = static_cast<uint8_t>(token[i]);
    if (code_point >= 0x80) {
      // U+0080 to U+07FF: two bytes.
      if (code_point < 0xC2 || code_point >= 0xE0 || ++i == token.size()) return std::nullopt;
      code_point = (code_point & 0x1Fu) << 6 | (static_cast<uint8_t>(token[i]) & 0x3Fu);
    }
    if (code_point >= kCodePoints || kBytes[code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[code_point]);
  }
  return bytes;
}

}  // namespace sherd
