#include "worker/data/path_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ExpandPatternsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a10", "a2", "B", "b", "sub/a1", "sub/deep/a1", "tub/a0", ".hidden",
                             "odd[1]", "odd1", "\xc3\xa4"}) {
      root_.Write(std::string("data/") + name, "x");
    }
  }
  std::vector<std::string> Expand(const std::vector<std::string>& patterns,
                                  TokenFormat format = TokenFormat::kText) {
    auto files = ExpandPatterns(root_ / "data", patterns, format);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *files : std::vector<std::string>();
  }
  absl::Status ErrorOf(const std::string& pattern) {
    return ExpandPatterns(root_ / "data", {pattern}, TokenFormat::kText).status();
  }

  const TemporaryDirectory root_;
};

// By bytes, not by the words of a language: the same on every worker.
TEST_F(ExpandPatternsTest, SortsWhatAPatternMatches) {
  EXPECT_THAT(Expand({"?*"}), ElementsAre("B", "a10", "a2", "b", "odd1", "odd[1]", "\xc3\xa4"));
  EXPECT_THAT(Expand({"b", "a*", "B"}), ElementsAre("b", "a10", "a2", "B"));
  EXPECT_THAT(Expand({"[a-b]*"}), ElementsAre("a10", "a2", "b"));
}

TEST_F(ExpandPatternsTest, MatchesNamesBetweenSlashesAndFilesAlone) {
  EXPECT_THAT(Expand({"*/a?"}), ElementsAre("sub/a1", "tub/a0"));
  EXPECT_THAT(Expand({"?ub/*"}), ElementsAre("sub/a1", "tub/a0"));
  EXPECT_THAT(Expand({"*/deep/a1"}), ElementsAre("sub/deep/a1"));
  EXPECT_THAT(Expand({root_ / "data/su?/a*"}), ElementsAre(root_ / "data/sub/a1"));
}

TEST_F(ExpandPatternsTest, APathThatIsThereIsNoPattern) {
  EXPECT_THAT(Expand({"odd[1]"}), ElementsAre("odd[1]"));
  EXPECT_THAT(Expand({"odd[0-9]"}), ElementsAre("odd1"));
  // Opening it says that it is missing.
  EXPECT_THAT(Expand({"missing"}), ElementsAre("missing"));
}

TEST_F(ExpandPatternsTest, NamesThePatternThatMatchesNothing) {
  for (const char* pattern : {"c*", "none/*", "a2/*", ".*", "*/none"}) {
    const absl::Status status = ErrorOf(pattern);
    EXPECT_TRUE(absl::IsNotFound(status)) << pattern;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(pattern) + " matches no file"));
  }
}

TEST_F(ExpandPatternsTest, LeadsNowhereOutOfTheRoot) {
  root_.Write("secret/key", "x");
  std::filesystem::create_directory_symlink(root_ / "secret", root_ / "data/link");
  for (const std::string& pattern : {std::string("../secret/*"), root_ / "secret/k*",
                                     std::string("link/*"), std::string("li*/*")}) {
    EXPECT_TRUE(absl::IsPermissionDenied(ErrorOf(pattern))) << pattern;
  }
}

TEST_F(ExpandPatternsTest, NamesEachOfMegatronsPairsOnce) {
  for (const char* name : {"p2.bin", "p2.idx", "p1.bin", "p1.idx", "p3.txt"}) {
    root_.Write(std::string("data/") + name, "x");
  }
  for (const char* pattern : {"p*", "p*.bin", "p*.idx", "p?"}) {
    EXPECT_THAT(Expand({pattern}, TokenFormat::kMegatron), ElementsAre("p1", "p2")) << pattern;
  }
}

TEST_F(ExpandPatternsTest, RefusesTooManyFiles) {
  for (int i = 0; i < 10001; ++i) root_.Write("data/many/" + std::to_string(i), "");
  EXPECT_THAT(std::string(ErrorOf("many/*").message()),
              HasSubstr("many/* matches more than 10000"));
  std::filesystem::remove(root_ / "data/many/7");
  EXPECT_EQ(Expand({"many/*"}).size(), 10000u);
}

}  // namespace
}  // namespace sherd
