#include "worker/agent/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "tests/support/temporary_directory.h"
#include "worker/agent/agent_state.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMs = 20'000;

// A named pipe through which children tell that they live.
class Births {
 public:
  struct Birth {
    pid_t pid = 0;
    uint64_t incarnation = 0;
  };

  Births() {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    pipe_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  }
  ~Births() { close(pipe_); }

  const std::string& path() const { return path_; }

  Birth Next() {
    while (text_.find('\n') == std::string::npos) {
      pollfd source = {pipe_, POLLIN, 0};
      if (poll(&source, 1, kPatienceMs) != 1) {
        ADD_FAILURE() << "no child was started";
        return {};
      }
      char buffer[256];
      const ssize_t size = read(pipe_, buffer, sizeof(buffer));
      if (size > 0) text_.append(buffer, static_cast<size_t>(size));
    }
    const size_t end = text_.find('\n');
    const std::pair<std::string, std::string> words =
        absl::StrSplit(text_.substr(0, end), absl::MaxSplits(' ', 1));
    text_.erase(0, end + 1);
    Birth birth;
    EXPECT_TRUE(absl::SimpleAtoi(words.first, &birth.pid));
    EXPECT_TRUE(absl::SimpleAtoi(words.second, &birth.incarnation));
    return birth;
  }

 private:
  const TemporaryDirectory scratch_;
  const std::string path_ = scratch_ / "births";
  std::string text_;
  int pipe_;
};

// Whether the process ends in time, also one that is not ours to wait for.
class Watch {
 public:
  explicit Watch(pid_t pid) : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~Watch() { close(descriptor_); }
  bool Ends() {
    pollfd source = {descriptor_, POLLIN, 0};
    return poll(&source, 1, kPatienceMs) == 1;
  }

 private:
  int descriptor_;
};

class SupervisorTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> modes) {
    SupervisorOptions options;
    for (size_t i = 0; i < modes.size(); ++i) {
      options.workers.push_back(WorkerId(absl::StrCat("host/cpu:", i)));
    }
    options.program = SHERD_SUPERVISED_CHILD;
    options.arguments = [this, modes = std::move(modes)](size_t slot, Incarnation incarnation) {
      return std::vector<std::string>{"child", modes[slot], births_.path(),
                                      absl::StrCat(incarnation.value())};
    };
    options.report_exit = [this](v1::ReportExitRequest request) {
      absl::MutexLock lock(&mutex_);
      exits_.push_back(std::move(request));
    };
    options.on_ready = [this](bool ready) {
      absl::MutexLock lock(&mutex_);
      readiness_.push_back(ready);
    };
    options.first_backoff = absl::Milliseconds(1);
    options.longest_backoff = absl::Milliseconds(10);
    options.stop_limit = stop_limit_;
    supervisor_ = std::make_unique<Supervisor>(std::move(options));
    thread_ = std::thread([this] { exit_code_ = supervisor_->Run(); });
  }
  void TearDown() override {
    if (thread_.joinable()) Stop();
  }
  int Stop() {
    supervisor_->RequestStop();
    return Join();
  }
  int Join() {
    thread_.join();
    return exit_code_;
  }
  v1::ReportExitRequest AwaitExit(size_t n) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return exits_.size() >= n; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Milliseconds(kPatienceMs))) {
      ADD_FAILURE() << "no exit was reported";
      return {};
    }
    return exits_[n - 1];
  }
  // All that was said of readiness, once that has been so much.
  std::vector<bool> AwaitReadiness(size_t n) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return readiness_.size() >= n; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Milliseconds(kPatienceMs))) {
      ADD_FAILURE() << "readiness changed " << readiness_.size() << " times";
      return std::vector<bool>(n);
    }
    return readiness_;
  }
  size_t exits() {
    absl::MutexLock lock(&mutex_);
    return exits_.size();
  }

  Births births_;
  absl::Duration stop_limit_ = absl::Milliseconds(kPatienceMs);
  std::unique_ptr<Supervisor> supervisor_;
  std::thread thread_;
  int exit_code_ = -1;
  absl::Mutex mutex_;
  std::vector<v1::ReportExitRequest> exits_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> readiness_ ABSL_GUARDED_BY(mutex_);
};

// F21, F54: the death is known at once, with its signal, and F25: a new life has a new number.
TEST_F(SupervisorTest, ReportsTheSignalThatKilledAChildAndStartsANewIncarnation) {
  Start({"wait"});
  Births::Birth life = births_.Next();
  size_t deaths = 0;
  for (const int signal : {SIGKILL, SIGSEGV, SIGKILL}) {
    ASSERT_GT(life.pid, 0);  // kill(0) would hit this very test
    kill(life.pid, signal);
    const v1::ReportExitRequest exit = AwaitExit(++deaths);
    EXPECT_EQ(exit.worker_id(), "host/cpu:0");
    EXPECT_EQ(exit.signal(), signal);
    EXPECT_EQ(exit.pid(), life.pid);
    EXPECT_EQ(exit.incarnation(), life.incarnation);
    const Births::Birth next = births_.Next();
    EXPECT_NE(next.incarnation, life.incarnation);
    life = next;
  }
}

TEST_F(SupervisorTest, ADeathOfOneChildLeavesTheOthersAlone) {
  Start({"wait", "wait"});
  const Births::Birth one = births_.Next();
  const Births::Birth other = births_.Next();
  ASSERT_GT(one.pid, 0);
  ASSERT_GT(other.pid, 0);
  kill(one.pid, SIGKILL);
  births_.Next();
  EXPECT_EQ(kill(other.pid, 0), 0);
  EXPECT_EQ(exits(), 1u);
}

TEST_F(SupervisorTest, IsReadyWhileEachOfItsChildrenHasACoordinator) {
  Start({"toggles", "toggles"});
  const pid_t one = births_.Next().pid;
  const pid_t other = births_.Next().pid;
  ASSERT_GT(one, 0);
  ASSERT_GT(other, 0);
  size_t changes = 0;
  kill(one, SIGUSR1);
  EXPECT_TRUE(AwaitReadiness(0).empty());
  kill(other, SIGUSR1);
  EXPECT_TRUE(AwaitReadiness(++changes).back());
  for (const pid_t child : {one, other}) {
    kill(child, SIGUSR1);
    EXPECT_FALSE(AwaitReadiness(++changes).back());
    kill(child, SIGUSR1);
    EXPECT_TRUE(AwaitReadiness(++changes).back());
  }
  // A new life has none at first.
  kill(other, SIGKILL);
  EXPECT_FALSE(AwaitReadiness(++changes).back());
  const pid_t next = births_.Next().pid;
  ASSERT_GT(next, 0);
  kill(next, SIGUSR1);
  EXPECT_TRUE(AwaitReadiness(++changes).back());
}

TEST_F(SupervisorTest, LetsAChildRestThatCannotWorkAndEndsWithTheLast) {
  Start({"1", "2"});
  EXPECT_EQ(Join(), kExitRefused);
  EXPECT_EQ(exits(), 2u);
}

// F60: a worker that was drained does not come back to be drained again.
TEST_F(SupervisorTest, AChildThatWasLetGoRests) {
  Start({"0", "0"});
  EXPECT_EQ(Join(), kExitAsked);
  EXPECT_EQ(exits(), 2u);
}

TEST_F(SupervisorTest, AsksItsChildrenToEndAndReportsNoneThatDoes) {
  Start({"wait", "wait", "wait"});
  for (int i = 0; i < 3; ++i) births_.Next();
  EXPECT_EQ(Stop(), kExitAsked);
  EXPECT_EQ(exits(), 0u);
}

// A terminal sends its SIGINT to the children too.
TEST_F(SupervisorTest, ItsChildrenLeaveAnInterruptToIt) {
  Start({"wait"});
  const Births::Birth life = births_.Next();
  ASSERT_GT(life.pid, 0);
  kill(life.pid, SIGINT);
  EXPECT_EQ(Stop(), kExitAsked);
  EXPECT_EQ(exits(), 0u);
}

TEST_F(SupervisorTest, KillsAChildThatDoesNotEndInTime) {
  stop_limit_ = absl::Milliseconds(20);
  Start({"deaf"});
  births_.Next();
  EXPECT_EQ(Stop(), kExitAsked);
  EXPECT_EQ(AwaitExit(1).signal(), SIGKILL);
}

TEST_F(SupervisorTest, ASecondRequestKillsAtOnce) {
  Start({"deaf"});
  births_.Next();
  supervisor_->RequestStop();
  EXPECT_EQ(Stop(), kExitAsked);
}

// F36: no orphans, however the supervisor dies.
TEST(Supervisor, LeavesNoChildBehindWhenItIsKilled) {
  Births births;
  absl::StatusOr<std::unique_ptr<ChildProcess>> supervisor =
      ChildProcess::Start(SHERD_SUPERVISED_CHILD, {"child", "supervise", births.path(), "1"});
  ASSERT_TRUE(supervisor.ok());
  Watch one(births.Next().pid);
  Watch other(births.Next().pid);
  (*supervisor)->Signal(SIGKILL);
  EXPECT_TRUE(one.Ends());
  EXPECT_TRUE(other.Ends());
}

TEST(ChildExit, SaysHowAProcessEnded) {
  EXPECT_EQ((ChildExit{.signal = SIGSEGV, .code = 0}).Describe(), "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ((ChildExit{.signal = 0, .code = 3}).Describe(), "exit code 3");
}

}  // namespace
}  // namespace sherd
