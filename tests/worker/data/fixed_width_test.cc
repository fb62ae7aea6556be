#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"
#include "worker/data/token_file.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FixedWidthFileTest : public testing::Test {
 protected:
  // The error's text; "" when the file opens.
  std::string ErrorOf(const std::string& bytes, TokenFormat format) {
    root_.Write("file.bin", bytes);
    return std::string(OpenTokenFile(root_.path(), "file.bin", format).status().message());
  }

  const TemporaryDirectory root_;
};

TEST_F(FixedWidthFileTest, TakesLlmcsTwoHeadersAndNoOther) {
  using written::LlmcHeader;
  const std::string four(4, 'x');
  EXPECT_EQ(ErrorOf(LlmcHeader(20240520, 1, 2) + four, TokenFormat::kLlmc), "");
  EXPECT_EQ(ErrorOf(LlmcHeader(20240801, 7, 1) + four, TokenFormat::kLlmc), "");
  EXPECT_THAT(ErrorOf(LlmcHeader(20240521, 1, 2) + four, TokenFormat::kLlmc),
              AllOf(HasSubstr("file.bin: byte 0:"), HasSubstr("20240521"), HasSubstr("20240801")));
  EXPECT_THAT(ErrorOf(LlmcHeader(20240522, 1, 2) + four, TokenFormat::kLlmc),
              HasSubstr("byte 0: the magic number 20240522 is of llm.c's multiple-choice"));
  EXPECT_THAT(ErrorOf(LlmcHeader(20240520, 7, 2) + four, TokenFormat::kLlmc),
              HasSubstr("byte 4: the version is 7; with magic number 20240520 it must be 1"));
  EXPECT_THAT(ErrorOf(LlmcHeader(20240801, 1, 1) + four, TokenFormat::kLlmc),
              HasSubstr("byte 4: the version is 1"));
}

// 2^31 tokens and more make a count below zero.
TEST_F(FixedWidthFileTest, RefusesACountThatIsNotTheFiles) {
  using written::LlmcHeader;
  for (const int32_t count : {0, -1, INT32_MIN}) {
    EXPECT_THAT(ErrorOf(LlmcHeader(20240520, 1, count) + "xx", TokenFormat::kLlmc),
                AllOf(HasSubstr("byte 8:"), HasSubstr(std::to_string(count))))
        << count;
  }
  for (const int32_t count : {1, 3, INT32_MAX}) {
    EXPECT_THAT(ErrorOf(LlmcHeader(20240520, 1, count) + "xxxx", TokenFormat::kLlmc),
                AllOf(HasSubstr("byte 8:"), HasSubstr("but it has 1028")))
        << count;
  }
}

TEST_F(FixedWidthFileTest, RefusesAFileThatWasCutOffAnywhere) {
  const std::string whole = written::LlmcU32({1, 2, 3});
  for (size_t bytes = 1; bytes < whole.size(); ++bytes) {
    const std::string error = ErrorOf(whole.substr(0, bytes), TokenFormat::kLlmc);
    if (bytes < 1024) {
      EXPECT_THAT(error, HasSubstr("byte " + std::to_string(bytes) + ": the file ends within"));
    } else {
      EXPECT_THAT(error, HasSubstr("byte 8:")) << bytes;
    }
  }
  EXPECT_THAT(ErrorOf("abcde", TokenFormat::kTokensU16),
              HasSubstr("byte 4: the file ends in the middle of a token"));
}

TEST_F(FixedWidthFileTest, RefusesToReadLlmcsHeaderAsTokens) {
  EXPECT_THAT(ErrorOf(written::LlmcU16({1, 2}), TokenFormat::kTokensU16),
              HasSubstr("data.format llmc"));
  // As it is not of a file of its size, it may be tokens.
  EXPECT_EQ(ErrorOf(written::LlmcU16({1, 2}) + "xx", TokenFormat::kTokensU16), "");
}

TEST_F(FixedWidthFileTest, RefusesAnIdThatNoModelHas) {
  root_.Write("file.bin", written::LlmcU32({1, 0x7fffffff, 0x80000000, 2}));
  const auto file = OpenTokenFile(root_.path(), "file.bin", TokenFormat::kLlmc);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<int32_t> ids(4);
  EXPECT_TRUE((*file)->Read(0, 2, ids.data()).ok());
  EXPECT_EQ(ids[1], 0x7fffffff);
  EXPECT_THAT(std::string((*file)->Read(0, 4, ids.data()).message()),
              HasSubstr("file.bin: byte 1032: 2147483648 is no token"));
}

TEST_F(FixedWidthFileTest, ReadsBehindTwoToThe31Tokens) {
  const int64_t tokens = (int64_t{1} << 31) + 1000;
  const std::string path = root_.Write("large.bin", "");
  std::filesystem::resize_file(path, static_cast<uintmax_t>(2 * tokens));
  {
    std::fstream large(path, std::ios::binary | std::ios::in | std::ios::out);
    large.seekp(2 * (tokens - 2));
    large << written::TokensU16({7, 9});
  }
  const auto file = OpenTokenFile(root_.path(), "large.bin", TokenFormat::kTokensU16);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tokens(), tokens);
  std::vector<int32_t> ids(3);
  ASSERT_TRUE((*file)->Read(tokens - 3, 3, ids.data()).ok());
  EXPECT_THAT(ids, testing::ElementsAre(0, 7, 9));
}

}  // namespace
}  // namespace sherd
