// Tables of contents of checkpoints, without what surrounds them: the checksum is put right, or
// nothing would get past it.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/manifest.h"

namespace {

// Deep JSON is refused by what is tested, and written by recursion before it gets there.
constexpr size_t kLongest = 1 << 13;

// As of version 3. What is written is of the newest version.
bool HasAllChecksums(const sherd::Manifest& manifest) {
  return std::all_of(manifest.tensors.begin(), manifest.tensors.end(), [](const auto& tensor) {
    return std::none_of(tensor.pieces.begin(), tensor.pieces.end(),
                        [](const auto& piece) { return piece.xxh3.empty(); });
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(sherd::AsText(data, size));
  sherd::ParseManifest(text).IgnoreError();
  if (size > kLongest) return 0;
  const auto checkpoint = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!checkpoint.is_object()) return 0;
  nlohmann::json sealed = {{"checkpoint", checkpoint}};
  sealed["xxh3"] = sherd::FormatChecksums({sherd::Checksum(checkpoint.dump())});
  const auto manifest = sherd::ParseManifest(sealed.dump());
  if (!manifest.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(manifest.status()));
    return 0;
  }
  if (!HasAllChecksums(*manifest)) return 0;
  // What is read says the same when it is written.
  const std::string written = sherd::FormatManifest(*manifest);
  const auto again = sherd::ParseManifest(written);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(sherd::FormatManifest(*again) == written);
  return 0;
}
