// Which token may do what.

#include "coordinator/rpc/access.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// printf %s TOKEN | sha256sum
constexpr char kAlpha[] = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
constexpr char kBeta[] = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";
constexpr char kGamma[] = "be9d587defa1f0c09ef49eb17e206983a5f8f8289e4281860bd0ee5a19592c67";

class AccessTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = absl::StrCat(directory_.path(), "/tokens");
    std::ofstream(absl::StrCat(path, ".new")) << text;
    std::filesystem::rename(absl::StrCat(path, ".new"), path);
    return path;
  }
  TemporaryDirectory directory_;
};

TEST_F(AccessTest, WithoutAFileEverybodyMayDoEverything) {
  const std::unique_ptr<Access> access = Access::Open();
  for (const Role role : {Role::kView, Role::kSubmit, Role::kAdmin, Role::kWorker}) {
    EXPECT_TRUE(access->CheckAuthorization("", role).ok());
  }
}

TEST_F(AccessTest, EachRoleMayDoWhatTheOnesBeforeItMayAndWorkersAreApart) {
  const Role all[] = {Role::kView, Role::kSubmit, Role::kAdmin, Role::kWorker};
  const struct {
    const char* role;
    bool allowed[4];
  } kCases[] = {{"view", {true, false, false, false}},
                {"submit", {true, true, false, false}},
                {"admin", {true, true, true, false}},
                {"worker", {false, false, false, true}}};
  for (const auto& test : kCases) {
    const auto access = Access::FromFile(
        Write(absl::StrCat("# of the team\n\n  ", test.role, "\tanna ", kAlpha, "\r\n")));
    ASSERT_TRUE(access.ok()) << access.status();
    for (int i = 0; i < 4; ++i) {
      const absl::Status status = (*access)->CheckAuthorization("Bearer alpha", all[i]);
      EXPECT_EQ(status.ok(), test.allowed[i]) << test.role << " " << i;
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsPermissionDenied(status));
        EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("anna"), HasSubstr(test.role)));
      }
    }
  }
}

TEST_F(AccessTest, WithoutATokenThatIsKnownNobodyMayDoAnything) {
  const auto access = Access::FromFile(Write(absl::StrCat("admin anna ", kAlpha)));
  ASSERT_TRUE(access.ok()) << access.status();
  for (const char* wrong : {"", "alpha", "Bearer ", "Bearer beta", "bearer alpha", "Basic alpha",
                            "Bearer  alpha", "Bearer alpha "}) {
    EXPECT_TRUE(absl::IsUnauthenticated((*access)->CheckAuthorization(wrong, Role::kView)))
        << wrong;
  }
}

TEST_F(AccessTest, AChangedFileIsReadAgainAndABrokenOneChangesNothing) {
  const auto access = Access::FromFile(Write(absl::StrCat("view anna ", kAlpha)));
  ASSERT_TRUE(access.ok()) << access.status();
  const auto may = [&](const char* token) {
    return (*access)->CheckAuthorization(absl::StrCat("Bearer ", token), Role::kView).ok();
  };
  EXPECT_TRUE(may("alpha"));
  const std::string path = Write(absl::StrCat("view ben ", kBeta));
  EXPECT_FALSE(may("alpha")) << "withdrawn";
  EXPECT_TRUE(may("beta"));
  Write("view ben nonsense");
  EXPECT_TRUE(may("beta"));
  std::filesystem::remove(path);
  EXPECT_TRUE(may("beta"));
  Write(absl::StrCat("view cleo ", kGamma));
  EXPECT_TRUE(may("gamma"));
  EXPECT_FALSE(may("beta"));
}

TEST_F(AccessTest, AWrongLineIsNamed) {
  const auto error = [&](const std::string& text) {
    const auto access = Access::FromFile(Write(text));
    EXPECT_TRUE(absl::IsInvalidArgument(access.status())) << text;
    return std::string(access.status().message());
  };
  EXPECT_THAT(error("\nview anna"), AllOf(HasSubstr("line 2"), HasSubstr("three words")));
  EXPECT_THAT(error(absl::StrCat("root anna ", kAlpha)), HasSubstr("role"));
  EXPECT_THAT(error("view anna 1234"), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(error(absl::StrCat("view anna ", std::string(64, 'g'))), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(error(absl::StrCat("view anna ", kAlpha, "\nadmin ben ", kAlpha)),
              AllOf(HasSubstr("line 2"), HasSubstr("same token")));
  EXPECT_THAT(error("# nobody\n"), HasSubstr("no token"));
  EXPECT_TRUE(absl::IsInvalidArgument(Access::FromFile("/not/there").status()));
}

}  // namespace
}  // namespace sherd
