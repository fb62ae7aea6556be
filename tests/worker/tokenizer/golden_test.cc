#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/worker/tokenizer/strings.h"
#include "tests/worker/tokenizer/tokenizers.h"

namespace sherd {
namespace {

uint64_t Fnv(uint64_t hash, absl::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  return hash;
}
constexpr uint64_t kFnvStart = 0xCBF29CE484222325u;

uint64_t HashOfIds(const std::vector<TokenId>& ids) {
  uint64_t hash = kFnvStart;
  for (const TokenId id : ids) {
    const char bytes[] = {static_cast<char>(id), static_cast<char>(id >> 8),
                          static_cast<char>(id >> 16), static_cast<char>(id >> 24)};
    hash = Fnv(hash, {bytes, 4});
  }
  return hash & 0xFFFFFF;
}

// The reference implementation's ids of these texts: tests/golden/tokenizer/make.py.
void ExpectReferenceIds(const std::string& name) {
  const Tokenizer tokenizer = GoldenTokenizer(name);
  std::istringstream vectors(
      ReadFile(std::string(SHERD_GOLDEN_DIR) + "/tokenizer/" + name + ".txt"));
  size_t count = 0;
  uint64_t all_texts = 0;
  vectors >> count >> std::hex >> all_texts;
  std::string hashes, row;
  while (vectors >> row) hashes += row;
  ASSERT_GE(count, 2000u);
  ASSERT_EQ(hashes.size(), 6 * count);

  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  uint64_t texts = kFnvStart;
  for (size_t i = 0; i < count; ++i) {
    const std::string text = DrawnText(1, i);
    texts = Fnv(texts, text);
    ids.clear();
    encoder.Append(text, ids);
    ASSERT_EQ(HashOfIds(ids), std::stoull(hashes.substr(6 * i, 6), nullptr, 16))
        << "text " << i << ": " << testing::PrintToString(text) << " became "
        << testing::PrintToString(ids);
  }
  EXPECT_EQ(texts, all_texts) << "the texts are others than the reference's";
}

TEST(GoldenTokenizer, Gpt2HasTheIdsOfTheReference) { ExpectReferenceIds("gpt2"); }
TEST(GoldenTokenizer, Llama3HasTheIdsOfTheReference) { ExpectReferenceIds("llama3"); }
TEST(GoldenTokenizer, FlagsOfAddedTokensMeanWhatTheyMeanToTheReference) {
  ExpectReferenceIds("flags");
}

}  // namespace
}  // namespace sherd
