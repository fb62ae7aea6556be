// Tables of contents of checkpoints. Their checksum is put right, or nothing would get past it.

#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(sherd::AsText(data, size));
  if (!sherd::ParseManifest(text).ok() && text.size() < 1 << 16) {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return 0;
    nlohmann::json sealed = {{"checkpoint", json}};
    sealed["xxh3"] =
        sherd::FormatChecksums({sherd::Checksum(sealed["checkpoint"].dump(-1, ' ', false,
            nlohmann::json::error_handler_t::replace))});
    const auto manifest = sherd::ParseManifest(
        sealed.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    if (!manifest.ok()) return 0;
    // What is read says the same when it is written.
    const std::string written = sherd::FormatManifest(*manifest);
    const auto again = sherd::ParseManifest(written);
    FUZZ_CHECK(again.ok());
    FUZZ_CHECK(sherd::FormatManifest(*again) == written);
  }
  return 0;
}
