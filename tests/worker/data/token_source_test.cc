#include "worker/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"

namespace sherd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<TokenSource>> Open(const TemporaryDirectory& root,
                                                  const std::vector<std::string>& patterns,
                                                  TokenFormat format = TokenFormat::kText,
                                                  int64_t vocab = 256) {
  return OpenTokens({root.path(), patterns, format, vocab});
}

TEST(TextSource, ReadsFilesOneAfterAnother) {
  const TemporaryDirectory root;
  root.Write("a", "ab");
  root.Write("sub/b", "c");
  root.Write("c", "\xff\xfe!");
  const auto source = Open(root, {"a", "sub/b", root / "c"});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->tokens(), 6);
  std::vector<int32_t> tokens(6);
  ASSERT_TRUE((*source)->Read(0, 6, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre('a', 'b', 'c', 0xff, 0xfe, '!'));
  ASSERT_TRUE((*source)->Read(2, 3, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre('c', 0xff, 0xfe, 0xff, 0xfe, '!'));
}

TEST(TextSource, ANulIsAnErrorThatNamesTheFileAndTheByte) {
  const TemporaryDirectory root;
  root.Write("text", "abc");
  root.Write("binary", std::string("de\0f", 4));
  const auto source = Open(root, {"text", "binary"});
  ASSERT_TRUE(source.ok());
  std::vector<int32_t> tokens(7);
  EXPECT_TRUE((*source)->Read(0, 5, tokens.data()).ok());
  EXPECT_THAT(std::string((*source)->Read(1, 6, tokens.data()).message()),
              HasSubstr("binary is not text: byte 2 is NUL"));
}

TEST(TextSource, AFileThatIsUnlinkedStaysReadable) {
  const TemporaryDirectory root;
  const std::string path = root.Write("gone.txt", "hello");
  const auto source = Open(root, {"gone.txt"});
  ASSERT_TRUE(source.ok());
  std::filesystem::remove(path);
  std::vector<int32_t> tokens(5);
  EXPECT_TRUE((*source)->Read(0, 5, tokens.data()).ok());
  EXPECT_EQ(tokens[4], 'o');
}

// What is left of the last page reads as zeros; no signal says so.
TEST(TokenSource, AFileThatShrinksWithinAPageIsAnErrorThatNamesIt) {
  const TemporaryDirectory root;
  const std::string path = root.Write("shrinking.txt", std::string(100, 'x'));
  const auto source = Open(root, {"shrinking.txt"});
  ASSERT_TRUE(source.ok());
  std::filesystem::resize_file(path, 40);
  std::vector<int32_t> tokens(50);
  EXPECT_TRUE((*source)->Read(0, 40, tokens.data()).ok());
  const absl::Status status = (*source)->Read(0, 50, tokens.data());
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shrinking.txt"));
}

// Whoever touches a page that was cut off is sent SIGBUS.
TEST(TokenSource, AFileThatLosesPagesIsAnErrorThatNamesIt) {
  const TemporaryDirectory root;
  const std::string path = root.Write("pages.bin", std::string(1 << 20, 'x'));
  const auto source = Open(root, {"pages.bin"}, TokenFormat::kTokensU16, 65536);
  ASSERT_TRUE(source.ok()) << source.status();
  std::filesystem::resize_file(path, 1 << 16);
  std::vector<int32_t> tokens(1 << 19);
  EXPECT_TRUE((*source)->Read(0, 1 << 15, tokens.data()).ok());
  for (const int64_t begin : {1 << 15, 1 << 18}) {
    const absl::Status status = (*source)->Read(begin, 1000, tokens.data());
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("pages.bin"));
  }
  // It goes on where the file is.
  EXPECT_TRUE((*source)->Read(100, 1 << 14, tokens.data()).ok());
}

TEST(TokenSource, ATokenOutsideOfTheVocabularyIsNamedWithFileAndPlace) {
  const TemporaryDirectory root;
  root.Write("a.bin", written::TokensU16({1, 2, 3}));
  root.Write("b.bin", written::TokensU16({4, 900, 5}));
  const auto source = Open(root, {"*.bin"}, TokenFormat::kTokensU16, 900);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<int32_t> tokens(6);
  EXPECT_TRUE((*source)->Read(0, 4, tokens.data()).ok());
  const absl::Status status = (*source)->Read(2, 3, tokens.data());
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("b.bin: token 1 has the id 900, but model.vocab is 900"));
}

TEST(TokenSource, EveryFormatGivesTheSameTokens) {
  const TemporaryDirectory root;
  const written::Ids ids = {'t', 'h', 'e', ' ', 'e', 'n', 'd', '.', '\n', 'a'};
  root.Write("text", "the end.\na");
  root.Write("lines", "{\"text\": \"the \"}\n\n{\"id\": 3, \"text\": \"end.\\na\"}\n");
  root.Write("u16", written::TokensU16(ids));
  root.Write("llmc16", written::LlmcU16(ids));
  root.Write("llmc32", written::LlmcU32(ids));
  root.Write("pair.bin", written::Stored<int32_t>(ids));
  root.Write("pair.idx", written::IndexOf({3, 0, 7}, 4, 4).Bytes());
  const std::pair<const char*, TokenFormat> files[] = {
      {"text", TokenFormat::kText},        {"lines", TokenFormat::kJsonl},
      {"u16", TokenFormat::kTokensU16},    {"llmc16", TokenFormat::kLlmc},
      {"llmc32", TokenFormat::kLlmc},      {"pair", TokenFormat::kMegatron},
      {"pair.bin", TokenFormat::kMegatron}};
  for (const auto& [name, format] : files) {
    const auto source = Open(root, {name}, format);
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_EQ((*source)->tokens(), 10) << name;
    for (int64_t begin = 0; begin <= 10; ++begin) {
      std::vector<int32_t> tokens(static_cast<size_t>(10 - begin));
      ASSERT_TRUE((*source)->Read(begin, 10 - begin, tokens.data()).ok()) << name;
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin() + begin)) << name;
    }
  }
}

TEST(TokenSource, AnEmptyFileIsRefusedInEveryFormat) {
  const TemporaryDirectory root;
  root.Write("empty", "");
  for (const TokenFormat format :
       {TokenFormat::kText, TokenFormat::kJsonl, TokenFormat::kTokensU16, TokenFormat::kLlmc}) {
    EXPECT_THAT(std::string(Open(root, {"empty"}, format).status().message()),
                HasSubstr("empty is empty"));
  }
}

}  // namespace
}  // namespace sherd
