// The headers of weights that others wrote.

#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  // How long the file is said to be: the header's length and up to 16 MiB more.
  const int64_t more = data[0] | data[1] << 8 | data[2] << 16;
  const absl::string_view text = sherd::AsText(data + 3, size - 3);
  const int64_t bytes = 8 + static_cast<int64_t>(text.size()) + more;
  const auto header = sherd::ParseSafetensorsHeader(text, bytes);
  if (!header.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(header.status()));
    return 0;
  }
  int64_t end = header->bytes;
  for (const sherd::SafetensorsEntry& entry : header->entries) {
    FUZZ_CHECK(entry.offset == end);
    FUZZ_CHECK(entry.bytes >= 0);
    end = entry.offset + entry.bytes;
  }
  FUZZ_CHECK(end == bytes);
  return 0;
}
