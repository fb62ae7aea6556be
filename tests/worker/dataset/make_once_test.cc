#include "worker/dataset/make_once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

// Whole or not at all, as every maker.
absl::Status Write(const std::string& path) {
  std::ofstream(path + ".part") << "made";
  std::filesystem::rename(path + ".part", path);
  return absl::OkStatus();
}

// Makes "file" in a thread of its own, and stops in the middle of it until it may end.
class SlowMaker {
 public:
  explicit SlowMaker(const std::string& directory)
      : thread_([this, directory] {
          const auto path = MakeOnce(directory, "file", nullptr, [this](const std::string& at) {
            begun_.Notify();
            may_end_.WaitForNotification();
            return Write(at);
          });
          EXPECT_TRUE(path.ok());
        }) {
    begun_.WaitForNotification();
  }
  ~SlowMaker() { may_end_.Notify(); }

 private:
  absl::Notification begun_, may_end_;
  std::jthread thread_;
};

TEST(MakeOnce, OneOfManyMakesAndAllFind) {
  const TemporaryDirectory scratch;
  std::atomic<int> made = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto path = MakeOnce(scratch / "deep/er", "file", nullptr, [&](const std::string& at) {
        ++made;
        return Write(at);
      });
      ASSERT_TRUE(path.ok()) << path.status();
      EXPECT_EQ(ReadFile(*path), "made");
    });
  }
  threads.clear();
  EXPECT_EQ(made, 1);
}

TEST(MakeOnce, WhoWaitsTakesOverFromWhoFails) {
  const TemporaryDirectory scratch;
  absl::Notification begun, may_fail;
  std::jthread fails([&] {
    const auto path = MakeOnce(scratch.path(), "file", nullptr, [&](const std::string&) {
      begun.Notify();
      may_fail.WaitForNotification();
      return absl::ResourceExhaustedError("full");
    });
    EXPECT_TRUE(absl::IsResourceExhausted(path.status()));
  });
  begun.WaitForNotification();
  std::jthread waits([&] {
    const auto path = MakeOnce(
        scratch.path(), "file",
        [&] {
          if (!may_fail.HasBeenNotified()) may_fail.Notify();
          return false;
        },
        &Write);
    EXPECT_TRUE(path.ok()) << path.status();
  });
  waits.join();
  EXPECT_EQ(ReadFile(scratch / "file"), "made");
}

TEST(MakeOnce, WaitingEndsWhenItIsStopped) {
  const TemporaryDirectory scratch;
  const SlowMaker maker(scratch.path());
  EXPECT_TRUE(absl::IsAborted(MakeOnce(
                                  scratch.path(), "file", [] { return true; }, &Write)
                                  .status()));
}

// F29: a maker that is frozen keeps its lock.
TEST(MakeOnce, AMakerThatDoesNotGoOnIsNotWaitedForForEver) {
  const TemporaryDirectory scratch;
  const SlowMaker maker(scratch.path());
  const auto path = MakeOnce(scratch.path(), "file", nullptr, &Write, absl::Milliseconds(1));
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadFile(scratch / "file"), "made");
}

TEST(MakeOnce, SaysWhyADirectoryCannotBeMade) {
  const TemporaryDirectory scratch;
  scratch.Write("file", "");
  const auto path = MakeOnce(scratch / "file/below", "name", nullptr, &Write);
  EXPECT_FALSE(path.ok());
  EXPECT_NE(path.status().message().find("file/below cannot be made"), std::string::npos)
      << path.status();
}

}  // namespace
}  // namespace sherd
