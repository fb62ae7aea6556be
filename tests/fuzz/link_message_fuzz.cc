// What comes in over data links from whoever connects.

#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/comm/link_address.h"
#include "worker/comm/link_message.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes = sherd::AsText(data, size);
  sherd::ParseLinkAddress(bytes).IgnoreError();
  const auto message = sherd::DecodeLinkMessage(bytes);
  if (!message.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(message.status()));
    return 0;
  }
  // Nothing but what EncodeLinkMessage makes is taken.
  FUZZ_CHECK(sherd::EncodeLinkMessage(*message) == bytes);
  return 0;
}
