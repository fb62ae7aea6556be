#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_directory.h"
#include "worker/data/jsonl_look.h"
#include "worker/data/token_file.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class JsonlFileTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& lines) {
    root_.Write("lines.jsonl", lines);
    return OpenTokenFile(root_.path(), "lines.jsonl", TokenFormat::kJsonl);
  }
  std::string ErrorOf(const std::string& lines) {
    return std::string(Open(lines).status().message());
  }
  absl::StatusOr<JsonlLook> Look(const std::string& lines, int64_t vocab = 256) {
    root_.Write("lines.jsonl", lines);
    const auto file = MappedFile::Open(root_.path(), "lines.jsonl");
    EXPECT_TRUE(file.ok());
    return LookAtJsonl(*file, vocab);
  }

  const TemporaryDirectory root_;
};

std::string TextOf(const TokenFile& file, int64_t begin, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  const absl::Status status = file.Read(begin, count, ids.data());
  return status.ok() ? std::string(ids.begin(), ids.end()) : std::string(status.message());
}

TEST_F(JsonlFileTest, TheBytesOfTextsFollowOneAnother) {
  const auto file = Open(
      "{\"text\": \"one\\n\"}\r\n"
      "\n"
      "  {\"meta\": {\"text\": \"no\", \"n\": [1, 2.5, null, true]}, \"text\": "
      "\"t\\u0077\\u00f6\"}  \n"
      "{\"text\": \"\"}\n"
      "{\"text\": \"end\"}");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->documents(), 4);
  ASSERT_EQ((*file)->tokens(), 11);
  EXPECT_EQ(TextOf(**file, 0, 11),
            "one\ntw\xc3\xb6"
            "end");
  EXPECT_EQ(TextOf(**file, 5, 4),
            "w\xc3\xb6"
            "e");
}

TEST_F(JsonlFileTest, NamesTheByteOfALineThatIsNoneOfThem) {
  const std::string good = "{\"text\": \"x\"}\n";  // 14 bytes
  EXPECT_THAT(ErrorOf(good + "{\"txt\": \"x\"}\n"),
              HasSubstr("lines.jsonl: byte 14: the object has no key \"text\""));
  EXPECT_THAT(ErrorOf(good + "{\"text\": 3}\n"),
              HasSubstr("byte 14: the value of \"text\" is no string"));
  EXPECT_THAT(ErrorOf(good + "{\"text\": [\"x\"]}\n"), HasSubstr("is no string"));
  EXPECT_THAT(ErrorOf(good + "{\"text\": {}}\n"), HasSubstr("is no string"));
  EXPECT_THAT(ErrorOf(good + "{\"text\": \"x\", \"text\": \"y\"}\n"), HasSubstr("\"text\" twice"));
  for (const char* other : {"3", "\"text\"", "[{\"text\": \"x\"}]", "null"}) {
    EXPECT_THAT(ErrorOf(good + other), HasSubstr("byte 14: the line is no JSON object")) << other;
  }
  EXPECT_THAT(ErrorOf(good + "{\"text\": \"x\"} {}\n"), HasSubstr("syntax"));
  EXPECT_THAT(ErrorOf(good + "{\"text\": x}\n"), HasSubstr("byte 23: a syntax error"));
  EXPECT_THAT(ErrorOf(good + "{\"text\": \"\xff\"}\n"), HasSubstr("no UTF-8"));
  EXPECT_THAT(ErrorOf(good + "{\"text\": \"\\ud800\"}\n"), HasSubstr("no UTF-8"));
  EXPECT_THAT(ErrorOf("\n  \n"), HasSubstr("holds no text"));
  EXPECT_THAT(ErrorOf("{\"text\": \"\"}\n"), HasSubstr("holds no text"));
}

TEST_F(JsonlFileTest, RefusesALineThatWasCutOffAnywhere) {
  const std::string line = "{\"text\": \"cut \\u0041\", \"n\": [1]}";
  for (size_t bytes = 1; bytes < line.size(); ++bytes) {
    EXPECT_THAT(ErrorOf(line.substr(0, bytes)), HasSubstr("lines.jsonl: byte ")) << bytes;
  }
  EXPECT_EQ(ErrorOf(line), "");
}

TEST_F(JsonlFileTest, ReadsFromAnyTokenOfManyLines) {
  std::string lines;
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    const std::string one = absl::StrCat(i, i % 7 == 0 ? std::string(i % 1000, '-') : "");
    absl::StrAppend(&lines, "{\"text\": \"", one, "\"}\n");
    text += one;
  }
  const auto file = Open(lines);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto tokens = static_cast<int64_t>(text.size());
  ASSERT_EQ((*file)->tokens(), tokens);
  EXPECT_EQ(TextOf(**file, 0, tokens), text);
  for (int64_t begin = 0; begin + 1000 <= tokens; begin += 99991) {
    EXPECT_EQ(TextOf(**file, begin, 1000), text.substr(static_cast<size_t>(begin), 1000));
  }
}

TEST_F(JsonlFileTest, ReadsALongLineAndRefusesOneThatFillsMemory) {
  const std::string text(3 << 20, 'x');
  const auto file = Open("{\"text\": \"" + text + "\"}\n{\"text\": \"y\"}\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(TextOf(**file, (3 << 20) - 1, 2), "xy");
  EXPECT_THAT(ErrorOf("{\"text\": \"x\"}\n" + std::string(65 << 20, ' ')),
              HasSubstr("byte 14: the line is longer than"));
}

TEST_F(JsonlFileTest, AFileThatChangesIsAnErrorThatNamesIt) {
  const auto file = Open("{\"text\": \"abc\"}\n{\"text\": \"def\"}\n");
  ASSERT_TRUE(file.ok()) << file.status();
  root_.Write("lines.jsonl", "{\"text\": \"abc\"}\n{\"text\": def\"}\n ");
  EXPECT_EQ(TextOf(**file, 0, 3), "abc");
  EXPECT_THAT(TextOf(**file, 2, 3), AllOf(HasSubstr("lines.jsonl"), HasSubstr("changed")));
  std::filesystem::resize_file(root_ / "lines.jsonl", 10);
  EXPECT_THAT(TextOf(**file, 0, 3), HasSubstr("lines.jsonl ends at byte 10"));
}

TEST_F(JsonlFileTest, ALookReadsBothEndsAlone) {
  std::string lines;
  while (lines.size() < 5 << 20) lines += "{\"text\": \"0123456789\"}\n";
  auto look = Look(lines);
  ASSERT_TRUE(look.ok()) << look.status();
  EXPECT_FALSE(look->whole);
  EXPECT_GT(look->tokens, 1 << 19);
  EXPECT_LT(look->tokens, 1 << 20);
  std::string broken = lines;
  broken[lines.size() / 2] = '{';
  EXPECT_TRUE(Look(broken).ok());
  broken = lines;
  broken[1 << 19] = '\n';
  EXPECT_FALSE(Look(broken).ok());
  broken = lines;
  broken[lines.size() - 3] = '{';
  EXPECT_FALSE(Look(broken).ok());
  EXPECT_TRUE(absl::IsOutOfRange(Look(lines, '9').status()));
  look = Look("{\"text\": \"012\"}");
  ASSERT_TRUE(look.ok());
  EXPECT_TRUE(look->whole);
  EXPECT_EQ(look->tokens, 3);
}

}  // namespace
}  // namespace sherd
