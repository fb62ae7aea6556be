// tokenizer.json, a text after a NUL byte. What a tokenizer encodes are its ids.

#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "worker/tokenizer/tokenizer.h"
#include "worker/tokenizer/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view all = sherd::AsText(data, size);
  const size_t cut = std::min(all.find('\0'), all.size());
  const auto tokenizer = sherd::ParseTokenizer(all.substr(0, cut));
  if (!tokenizer.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(tokenizer.status()));
    return 0;
  }
  std::vector<sherd::TokenId> ids;
  sherd::Encoder(*tokenizer).Append(all.substr(std::min(cut + 1, all.size())), ids);
  for (const sherd::TokenId id : ids) {
    FUZZ_CHECK(static_cast<int64_t>(id) < tokenizer->vocab());
  }
  tokenizer->Decode(ids);
  return 0;
}
