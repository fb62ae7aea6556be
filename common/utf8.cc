#include "common/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

// Length of the sequence that `lead` starts and the range of its second byte; 0 when it starts
// none.
struct Lead {
  size_t length;
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead Classify(uint8_t lead) {
  if (lead == 0) return {0};
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(absl::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  for (size_t at = 0; at < text.size();) {
    const Lead lead = Classify(byte(at));
    if (lead.length == 0 || text.size() - at < lead.length) return at;
    for (size_t i = 1; i < lead.length; ++i) {
      const uint8_t low = i == 1 ? lead.second_low : 0x80;
      const uint8_t high = i == 1 ? lead.second_high : 0xBF;
      if (byte(at + i) < low || byte(at + i) > high) return at;
    }
    at += lead.length;
  }
  return std::nullopt;
}

std::string MendUtf8(absl::string_view text) {
  std::string mended;
  while (const std::optional<size_t> bad = FindInvalidUtf8(text)) {
    absl::StrAppend(&mended, text.substr(0, *bad), "\xEF\xBF\xBD");
    text.remove_prefix(*bad + 1);
  }
  absl::StrAppend(&mended, text);
  return mended;
}

}  // namespace sherd
