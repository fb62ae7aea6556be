// The daemon as a process: what it prints, how it ends, what it leaves.

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "coordinator/core/rules.h"
#include "coordinator/store/event_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kDeadline = absl::Seconds(20);

// A coordinator process; killed, if it still runs, with the object.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> arguments, bool under_a_parent = false) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), SHERD_COORDINATOR_BINARY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDERR_FILENO);
      if (under_a_parent && fork() != 0) pause();
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    stderr_ = ends[0];
  }
  ~Daemon() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(stderr_);
  }
  Daemon(const Daemon&) = delete;

  void Signal(int signal) { kill(pid_, signal); }

  // Its exit code; -1 when a signal ended it or it does not end in time.
  int Wait() {
    const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd ended{descriptor, POLLIN, 0};
    const int ready = poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(kDeadline)));
    close(descriptor);
    if (ready != 1) return -1;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // What it says on stderr: until a line has `mark`, or until the last process that holds the pipe
  // has ended.
  std::string ReadUntil(const std::string& mark) {
    std::string text;
    const absl::Time deadline = absl::Now() + kDeadline;
    while (mark.empty() || text.find(mark) == std::string::npos) {
      pollfd readable{stderr_, POLLIN, 0};
      const absl::Duration left = deadline - absl::Now();
      if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) != 1) break;
      char buffer[1024];
      const ssize_t size = read(stderr_, buffer, sizeof(buffer));
      if (size <= 0) return text;
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  pid_t pid_ = 0;
  int stderr_ = -1;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

class DaemonTest : public testing::Test {
 protected:
  std::vector<std::string> Flags(const std::string& data_dir,
                                 const std::string& listen = "127.0.0.1:0") {
    return {"--listen",    listen,    "--data-dir", directory_.path() + "/" + data_dir,
            "--port-file", port_file_};
  }
  // One line on stderr, and exit code 1.
  void ExpectRefusal(Daemon& daemon, const std::string& says) {
    const std::string text = daemon.ReadUntil("");
    EXPECT_THAT(text, HasSubstr(says));
    EXPECT_THAT(std::vector<std::string>(absl::StrSplit(text, '\n')), SizeIs(2)) << text;
    EXPECT_EQ(daemon.Wait(), 1);
  }

  const TemporaryDirectory directory_;
  const std::string port_file_ = directory_.path() + "/port";
};

TEST_F(DaemonTest, WritesItsAddressWhenItServesAndEndsInOrder) {
  Daemon daemon(Flags("a"));
  const std::string text = daemon.ReadUntil("serving on");
  const std::string address = ReadFile(port_file_);
  EXPECT_THAT(address, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(text, HasSubstr(address));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

// A log with one event, of these rules; its path below the directory is "a".
void WriteLog(const std::string& directory, int32_t rules) {
  absl::StatusOr<std::unique_ptr<EventLog>> log = EventLog::Open(directory);
  ASSERT_TRUE(log.ok()) << log.status();
  LogBatch batch;
  v1::DurableEvent& event = batch.events.emplace_back();
  event.set_sequence(1);
  event.set_rules(rules);
  event.mutable_worker_joined()->set_worker_id("w0");
  event.mutable_worker_joined()->set_incarnation(1);
  ASSERT_TRUE((*log)->Commit(batch).ok());
}

TEST_F(DaemonTest, StoppedInOrderItLeavesASnapshotOfTheWholeLog) {
  WriteLog(directory_.path() + "/a", kRules);
  Daemon daemon(Flags("a"));
  daemon.ReadUntil("serving on");
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  const auto log = EventLog::Open(directory_.path() + "/a");
  ASSERT_TRUE(log.ok()) << log.status();
  const auto snapshot = (*log)->ReadSnapshot();
  ASSERT_TRUE(snapshot.ok() && snapshot->has_value());
  int64_t later = 0;
  const auto count = [&](const v1::DurableEvent&) { ++later; };
  EXPECT_TRUE((*log)->Replay((*snapshot)->sequence(), count).ok());
  EXPECT_EQ(later, 0);
}

TEST_F(DaemonTest, ALogOfOtherRulesIsRefusedInOneSentence) {
  WriteLog(directory_.path() + "/a", kRules + 1);
  Daemon daemon(Flags("a"));
  ExpectRefusal(daemon, "start that version on it once more and stop it with SIGTERM");
}

TEST_F(DaemonTest, EndsInOrderAtAnInterruptToo) {
  Daemon daemon(Flags("a"));
  daemon.ReadUntil("serving on");
  daemon.Signal(SIGINT);
  EXPECT_EQ(daemon.Wait(), 0);
}

TEST_F(DaemonTest, ATakenPortIsOneSentenceAndExitCodeOne) {  // F28
  Daemon first(Flags("a"));
  first.ReadUntil("serving on");
  Daemon second(Flags("b", ReadFile(port_file_)));
  ExpectRefusal(second, "cannot listen on " + ReadFile(port_file_));
}

TEST_F(DaemonTest, ASecondCoordinatorOnTheSameLogRefusesToStart) {
  Daemon first(Flags("a"));
  first.ReadUntil("serving on");
  Daemon second(Flags("a"));
  ExpectRefusal(second, "another coordinator");
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait(), -1);
  // What a killed one leaves holds nobody up.
  Daemon third(Flags("a"));
  EXPECT_THAT(third.ReadUntil("serving on"), HasSubstr("serving on"));
}

TEST_F(DaemonTest, ADamagedLogIsOneSentenceAndExitCodeOne) {
  std::filesystem::create_directories(directory_.path() + "/a");
  std::ofstream(directory_.path() + "/a/events.db") << std::string(5000, 'x');
  Daemon daemon(Flags("a"));
  ExpectRefusal(daemon, "is damaged");
}

TEST_F(DaemonTest, ATakenMetricsPortIsOneSentenceAndExitCodeOne) {  // F28
  Daemon first(Flags("a"));
  first.ReadUntil("serving on");
  std::vector<std::string> flags = Flags("b");
  flags.insert(flags.end(), {"--metrics", ReadFile(port_file_)});
  Daemon second(flags);
  ExpectRefusal(second, "cannot serve metrics at");
}

TEST_F(DaemonTest, BadUsageIsExitCodeTwo) {
  for (const char* bad : {"0s", "-1s", "soon", "100h"}) {
    std::vector<std::string> flags = Flags("a");
    flags.insert(flags.end(), {"--failure-detection", bad});
    Daemon daemon(flags);
    EXPECT_THAT(daemon.ReadUntil(""), AllOf(HasSubstr("--failure-detection"), HasSubstr(bad)));
    EXPECT_EQ(daemon.Wait(), 2);
  }
  Daemon unknown({"--lisen", "x"});
  EXPECT_EQ(unknown.Wait(), 2);
}

TEST_F(DaemonTest, EndsWithItsParent) {  // F36
  std::vector<std::string> flags = Flags("a");
  flags.push_back("--exit-with-parent");
  Daemon parent(flags, /*under_a_parent=*/true);
  parent.ReadUntil("serving on");
  parent.Signal(SIGKILL);
  EXPECT_EQ(parent.Wait(), -1);
  // The pipe's last holder is the coordinator: it ends, or this waits for the deadline.
  const absl::Time start = absl::Now();
  parent.ReadUntil("");
  EXPECT_LT(absl::Now() - start, kDeadline / 2);
}

}  // namespace
}  // namespace sherd
