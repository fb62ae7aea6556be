#include "worker/checkpoint/chunk_checksums.h"

#include <xxhash.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

constexpr size_t kDigits = 16;

}  // namespace

uint64_t Checksum(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::vector<uint64_t> ChunkChecksums(absl::string_view bytes) {
  std::vector<uint64_t> checksums;
  for (; !bytes.empty(); bytes.remove_prefix(std::min<size_t>(kChunkBytes, bytes.size()))) {
    checksums.push_back(Checksum(bytes.substr(0, kChunkBytes)));
  }
  return checksums;
}

std::string FormatChecksums(const std::vector<uint64_t>& checksums) {
  std::string text;
  for (const uint64_t value : checksums) {
    absl::StrAppend(&text, absl::Hex(value, absl::kZeroPad16));
  }
  return text;
}

bool ParseChecksums(absl::string_view text, std::vector<uint64_t>& checksums) {
  checksums.clear();
  for (absl::string_view rest = text; rest.size() >= kDigits; rest.remove_prefix(kDigits)) {
    uint64_t value = 0;
    if (!absl::SimpleHexAtoi(rest.substr(0, kDigits), &value)) return false;
    checksums.push_back(value);
  }
  return FormatChecksums(checksums) == text;
}

}  // namespace sherd
