// What a coordinator stores comes back whole; what is damaged is said.

#include "coordinator/store/event_log.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/event_log_fixture.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(EventLog, KeepsEventsFeedAndAcknowledgementsOverARestart) {
  const TemporaryDirectory directory;
  {
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    LogBatch batch = EventBatch(1, 2);
    batch.feed = {StepEntry("a-1", 1, 1), StepEntry("a-1", 2, 2), StepEntry("b-2", 1, 9)};
    v1::JobEvent line = StepEntry("a-1", 3, 0);
    line.mutable_log()->set_text("hello");
    batch.feed.push_back(line);
    batch.acknowledgements = {{WorkerId("w1"), Incarnation(~uint64_t{0}), 41}};
    ASSERT_TRUE(log->Commit(batch).ok());
    LogBatch next = EventBatch(3, 1);
    next.acknowledgements = {{WorkerId("w1"), Incarnation(~uint64_t{0}), 42}};
    ASSERT_TRUE(log->Commit(next).ok());
  }
  const std::unique_ptr<EventLog> log = OpenLog(directory.path());
  EXPECT_EQ(ReplayedSequences(*log), (std::vector<int64_t>{1, 2, 3}));

  const std::vector<FeedSummary> feeds = *log->SummarizeFeeds();
  ASSERT_THAT(feeds, SizeIs(2));
  EXPECT_EQ(feeds[0].job, JobId("a-1"));
  EXPECT_EQ(feeds[0].last_sequence, 3);
  EXPECT_EQ(feeds[0].log_lines, 1);
  EXPECT_EQ(feeds[0].last_step.step().step(), 2);
  EXPECT_EQ(feeds[1].last_step.step().step(), 9);

  const std::vector<v1::JobEvent> rest = *log->ReadFeed(JobId("a-1"), 1, 100);
  ASSERT_THAT(rest, SizeIs(2));
  EXPECT_EQ(rest[0].sequence(), 2);
  EXPECT_EQ(rest[1].log().text(), "hello");
  EXPECT_THAT(*log->ReadFeed(JobId("a-1"), 0, 1), SizeIs(1));

  const std::vector<Acknowledgement> acknowledgements = *log->Acknowledgements();
  ASSERT_THAT(acknowledgements, SizeIs(1));
  EXPECT_EQ(acknowledgements[0].incarnation, Incarnation(~uint64_t{0}));
  EXPECT_EQ(acknowledgements[0].sequence, 42u);
}

TEST(EventLog, ABatchIsStoredWholeOrNotAtAll) {
  const std::unique_ptr<EventLog> log = OpenLog(":memory:");
  ASSERT_TRUE(log->Commit(EventBatch(1, 2)).ok());
  LogBatch clash = EventBatch(3, 2);
  clash.events[1].set_sequence(1);
  EXPECT_FALSE(log->Commit(clash).ok());
  EXPECT_EQ(ReplayedSequences(*log), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(log->Commit(EventBatch(3, 2)).ok());
}

TEST(EventLog, SurvivesTheDeathOfTheProcess) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<std::unique_ptr<EventLog>> log = EventLog::Open(directory.path());
    if (log.ok() && (*log)->Commit(EventBatch(1, 5)).ok()) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(ReplayedSequences(*OpenLog(directory.path())), SizeIs(5));
}

TEST(EventLog, ASecondCoordinatorIsRefused) {
  const TemporaryDirectory directory;
  std::unique_ptr<EventLog> first = OpenLog(directory.path());
  const absl::Status refused = EventLog::Open(directory.path()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(absl::StrCat("process ", getpid())), HasSubstr("--data-dir")));
  ExpectOneSentence(refused);
  first.reset();
  EXPECT_TRUE(EventLog::Open(directory.path()).ok());
}

TEST(EventLog, AFileThatIsNoDatabaseIsDamage) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/events.db") << std::string(10'000, 'x');
  const absl::Status status = EventLog::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("events.db is damaged"));
  ExpectOneSentence(status);
}

TEST(EventLog, ATornFileIsDamage) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/events.db";
  {
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    ASSERT_TRUE(log->Commit(EventBatch(1, 2000)).ok());
  }
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2 / 4096 * 4096);
  const absl::Status status = EventLog::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  ExpectOneSentence(status);
}

TEST(EventLog, AMissingEventIsDamage) {
  const std::unique_ptr<EventLog> log = OpenLog(":memory:");
  ASSERT_TRUE(log->Commit(EventBatch(1, 1)).ok());
  ASSERT_TRUE(log->Commit(EventBatch(3, 1)).ok());
  const absl::Status status = log->Replay(0, [](const v1::DurableEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("event 2 is missing"));
  ExpectOneSentence(status);
}

TEST(EventLog, ATornWriteAheadLogLosesOnlyWhatWasNotCommitted) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<std::unique_ptr<EventLog>> log = EventLog::Open(directory.path());
    if (log.ok() && (*log)->Commit(EventBatch(1, 3)).ok()) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  // Half a frame of a transaction that was never finished.
  std::ofstream(directory.path() + "/events.db-wal", std::ios::app | std::ios::binary)
      << std::string(2000, '\x5a');
  EXPECT_THAT(ReplayedSequences(*OpenLog(directory.path())), SizeIs(3));
}

TEST(EventLog, ADirectoryThatCannotBeMadeIsNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/file";
  std::ofstream(file) << "in the way";
  const absl::Status status = EventLog::Open(file + "/log").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  ExpectOneSentence(status);
}

// A limit on the file's size stands for a full disk: the write fails, what was stored stays.
TEST(EventLog, AFullDiskFailsTheCommitAndKeepsWhatWasStored) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    absl::StatusOr<std::unique_ptr<EventLog>> log = EventLog::Open(directory.path());
    if (!log.ok() || !(*log)->Commit(EventBatch(1, 3)).ok()) _exit(1);
    const rlimit limit{64 << 10, 64 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status full = (*log)->Commit(EventBatch(4, 5000));
    if (full.ok()) _exit(2);
    const bool told = full.message().find("events.db") != absl::string_view::npos;
    _exit(told ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(ReplayedSequences(*OpenLog(directory.path())), SizeIs(3));
}

TEST(EventLog, AForgottenFeedIsDroppedPieceByPiece) {
  const std::unique_ptr<EventLog> log = OpenLog(":memory:");
  LogBatch batch;
  for (int64_t step = 1; step <= 25; ++step) batch.feed.push_back(StepEntry("a-1", step, step));
  batch.feed.push_back(StepEntry("b-2", 1, 1));
  ASSERT_TRUE(log->Commit(batch).ok());
  EXPECT_FALSE(*log->DropFeed(JobId("a-1"), 10));
  EXPECT_THAT(*log->ReadFeed(JobId("a-1"), 0, 100), SizeIs(15));
  EXPECT_FALSE(*log->DropFeed(JobId("a-1"), 10));
  EXPECT_TRUE(*log->DropFeed(JobId("a-1"), 10));
  EXPECT_TRUE(*log->DropFeed(JobId("a-1"), 10));
  EXPECT_THAT(*log->SummarizeFeeds(), SizeIs(1));
}

}  // namespace
}  // namespace sherd
