#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/worker/tokenizer/strings.h"
#include "tests/worker/tokenizer/tokenizers.h"
#include "worker/pack/pack.h"

namespace sherd {

// Some text with places to cut it, and of all that makes tokenizers err.
inline std::string SomeText(uint64_t seed, size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    text += DrawnText(seed, i) + (i % 3 == 0 ? "\n" : " the end of it ");
  }
  return text;
}

// The ids of a token file, after its first `header` bytes.
template <typename Id>
std::vector<TokenId> IdsOf(const std::string& file, size_t header) {
  std::vector<Id> ids((file.size() - header) / sizeof(Id));
  std::memcpy(ids.data(), file.data() + header, ids.size() * sizeof(Id));
  return {ids.begin(), ids.end()};
}

// A directory with the tokenizer gpt2.json, and options that name it and the file `out`.
class Packing {
 public:
  Packing() {
    options.tokenizer = root.Write("tokenizer.json", GoldenTokenizerJson("gpt2").dump());
    options.out = root / "out";
    options.format = PackFormat::kTokensU16;
  }
  void AddFile(const std::string& name, const std::string& text) {
    options.files.push_back(root.Write(name, text));
  }
  absl::StatusOr<PackSummary> Run() const {
    return Pack(options, [](const PackProgress&) {});
  }
  std::string Error() const { return std::string(Run().status().message()); }

  const TemporaryDirectory root;
  PackOptions options;
};

}  // namespace sherd
