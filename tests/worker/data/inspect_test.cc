#include "worker/data/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/worker/data/written_tokens.h"
#include "worker/data/roots.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class InspectFilesTest : public testing::Test {
 protected:
  // The error's text; "" when the files are fine.
  std::string Inspect(const std::vector<std::string>& train, const std::string& output = "out",
                      int64_t vocab = 256, v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED) {
    v1::DataSpec data;
    data.set_format(format);
    for (const std::string& path : train) data.add_train(path);
    v1::CheckpointSpec checkpoint;
    checkpoint.set_dir(output);
    return std::string(
        InspectFiles(data, checkpoint, 16, vocab, root_ / "data", root_ / "output").message());
  }
  void SetUp() override {
    root_.Write("data/good.txt", "seventeen letters");
    std::filesystem::create_directories(root_ / "output");
  }

  const TemporaryDirectory root_;
};

TEST_F(InspectFilesTest, AcceptsTextOfOneSequenceAndOneByte) {
  EXPECT_EQ(Inspect({"good.txt"}), "");
  EXPECT_EQ(Inspect({root_ / "data/good.txt"}, root_ / "output/deep/er"), "");
}

TEST_F(InspectFilesTest, NamesWhatIsWrongWithAFile) {
  root_.Write("data/empty.txt", "");
  root_.Write("data/short.txt", "sixteen letters.");
  // In the last of what is looked at.
  root_.Write("data/binary", std::string(3 << 20, 'x') + '\0' + "x");
  EXPECT_THAT(Inspect({"good.txt", "missing.txt"}),
              AllOf(HasSubstr("data.train: missing.txt"), HasSubstr("does not exist")));
  EXPECT_THAT(Inspect({"empty.txt"}), HasSubstr("empty.txt is empty"));
  EXPECT_THAT(Inspect({"short.txt"}),
              AllOf(HasSubstr("short.txt holds 16 bytes"), HasSubstr("train.seq_len 16")));
  EXPECT_THAT(Inspect({"binary"}), AllOf(HasSubstr("binary is not text"), HasSubstr("3145728")));
  EXPECT_THAT(Inspect({"."}), HasSubstr("is a directory"));
  EXPECT_THAT(Inspect({"good.txt"}, "out", 100),
              AllOf(HasSubstr("good.txt"), HasSubstr("model.vocab is 100")));
  EXPECT_THAT(Inspect({}), HasSubstr("data.train"));
}

TEST_F(InspectFilesTest, LooksOnlyAtBothEndsOfALargeFile) {
  std::string text(5 << 20, 'x');
  text[2 << 20] = '\0';
  root_.Write("data/large", text);
  EXPECT_EQ(Inspect({"large"}), "");
  text[100] = '\0';
  root_.Write("data/large", text);
  EXPECT_THAT(Inspect({"large"}), HasSubstr("byte 100 is NUL"));
}

TEST_F(InspectFilesTest, TakesPatternsAndNamesOneThatMatchesNothing) {
  root_.Write("data/parts/1.txt", "nine char");
  root_.Write("data/parts/2.txt", "8 chars.");
  EXPECT_EQ(Inspect({"parts/*.txt"}), "");
  EXPECT_THAT(Inspect({"parts/1*"}), HasSubstr("parts/1* holds 9 bytes"));
  EXPECT_THAT(Inspect({"good.txt", "parts/*.bin"}),
              HasSubstr("data.train: parts/*.bin matches no file"));
}

TEST_F(InspectFilesTest, LooksAtTokensOfEveryFormat) {
  written::Ids ids(17, 299);
  root_.Write("data/u16", written::TokensU16(ids));
  root_.Write("data/llmc", written::LlmcU32(ids));
  root_.Write("data/pair.bin", written::TokensU16(ids));
  root_.Write("data/pair.idx", written::IndexOf({8, 9}, 8, 2).Bytes());
  for (const auto& [name, format] :
       {std::pair("u16", v1::DATA_FORMAT_TOKENS_U16), std::pair("llmc", v1::DATA_FORMAT_LLMC),
        std::pair("pair", v1::DATA_FORMAT_MEGATRON)}) {
    EXPECT_EQ(Inspect({name}, "out", 300, format), "");
    EXPECT_THAT(
        Inspect({name}, "out", 299, format),
        AllOf(HasSubstr(name), HasSubstr("token 0 has the id 299, but model.vocab is 299")));
  }
  EXPECT_THAT(Inspect({"u16"}, "out", 300, v1::DATA_FORMAT_LLMC),
              HasSubstr("data.train: u16: byte 34: the file ends within llm.c's header"));
  ids.pop_back();
  root_.Write("data/u16", written::TokensU16(ids));
  EXPECT_THAT(Inspect({"u16"}, "out", 300, v1::DATA_FORMAT_TOKENS_U16),
              HasSubstr("u16 holds 16 tokens, less than one sequence"));
}

TEST_F(InspectFilesTest, LooksAtTheFirstAndTheLastMibOfTokens) {
  written::Ids ids(3 << 20, 1);
  ids[1 << 20] = 5000;
  root_.Write("data/u16", written::TokensU16(ids));
  EXPECT_EQ(Inspect({"u16"}, "out", 256, v1::DATA_FORMAT_TOKENS_U16), "");
  ids[(3 << 20) - (1 << 19)] = 5000;
  root_.Write("data/u16", written::TokensU16(ids));
  EXPECT_THAT(Inspect({"u16"}, "out", 256, v1::DATA_FORMAT_TOKENS_U16),
              HasSubstr("token 2621440 has the id 5000"));
}

TEST_F(InspectFilesTest, LooksAtLinesOfJson) {
  root_.Write("data/lines", "{\"text\": \"seventeen letters\"}\n");
  root_.Write("data/short", "{\"text\": \"sixteen letters.\"}\n");
  root_.Write("data/none", "{\"text\": \"\"}\n");
  // Of the line in the middle, which is longer than what is looked at, nothing is known.
  root_.Write("data/long", "{\"text\": \"x\"}\n{\"text\": \"" + std::string(3 << 20, 'x') +
                               "\"}\n" + std::string(1 << 20, ' '));
  const auto inspect = [&](const char* name) {
    return Inspect({name}, "out", 256, v1::DATA_FORMAT_JSONL);
  };
  EXPECT_EQ(inspect("lines"), "");
  EXPECT_EQ(inspect("long"), "");
  EXPECT_THAT(inspect("short"), HasSubstr("short holds 16 bytes"));
  EXPECT_THAT(inspect("none"), HasSubstr("none is empty"));
  EXPECT_THAT(inspect("good.txt"), HasSubstr("good.txt: byte 0: a syntax error"));
}

TEST_F(InspectFilesTest, DoesNotWaitForAPipe) {
  ASSERT_EQ(mkfifo((root_ / "data/pipe").c_str(), 0600), 0);
  EXPECT_THAT(Inspect({"pipe"}), HasSubstr("not a regular file"));
}

TEST_F(InspectFilesTest, NothingLeadsOutOfTheDataRoot) {
  root_.Write("secret/key", "seventeen letters");
  root_.Write("data-too/key", "seventeen letters");
  std::filesystem::create_symlink(root_ / "secret/key", root_ / "data/link");
  std::filesystem::create_directory_symlink(root_ / "secret", root_ / "data/directory");
  std::filesystem::create_symlink("good.txt", root_ / "data/inside");
  EXPECT_EQ(Inspect({"inside"}), "");
  for (const std::string& path :
       {std::string("link"), std::string("directory/key"), std::string("../secret/key"),
        std::string("../data-too/key"), root_ / "secret/key"}) {
    EXPECT_THAT(Inspect({path}), AllOf(HasSubstr(path), HasSubstr("outside"))) << path;
  }
}

TEST_F(InspectFilesTest, TheOutputMustBeWritableBelowItsRoot) {
  root_.Write("output/file", "");
  root_.Write("elsewhere/file", "");
  std::filesystem::create_directory_symlink(root_ / "elsewhere", root_ / "output/link");
  std::filesystem::create_symlink(root_ / "nowhere", root_ / "output/dangling");
  EXPECT_THAT(Inspect({"good.txt"}, "../elsewhere"), HasSubstr("outside"));
  EXPECT_THAT(Inspect({"good.txt"}, "link/out"), HasSubstr("outside"));
  EXPECT_THAT(Inspect({"good.txt"}, "."), HasSubstr("outside"));
  EXPECT_THAT(Inspect({"good.txt"}, "dangling"), HasSubstr("nowhere"));
  EXPECT_THAT(Inspect({"good.txt"}, "file/out"), HasSubstr("is a file"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "output/out"));
}

TEST(ResolveOutputDirectory, GivesAnAbsolutePathWithoutDetours) {
  const TemporaryDirectory root;
  const std::string real = std::filesystem::canonical(root.path()).string();
  EXPECT_EQ(*ResolveOutputDirectory(root.path(), "a/b/"), real + "/a/b");
  EXPECT_EQ(*ResolveOutputDirectory(root.path(), "./a/../c"), real + "/c");
  EXPECT_EQ(*ResolveOutputDirectory("", root / "x"), real + "/x");
  EXPECT_TRUE(absl::IsPermissionDenied(ResolveOutputDirectory(root.path(), "a/../..").status()));
}

}  // namespace
}  // namespace sherd
