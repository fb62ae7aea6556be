// Snapshots stand for the events before them, which are dropped.

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/store/event_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/event_log_fixture.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A state after event `sequence` that knows the workers "w1" to "wN".
v1::StoredState StateAfter(int64_t sequence) {
  v1::StoredState state;
  state.set_sequence(sequence);
  for (int64_t number = 1; number <= sequence; ++number) {
    state.add_workers()->set_id(absl::StrCat("w", number));
  }
  return state;
}

// The sequence of the snapshot that a coordinator would begin with, 0 without one, and those of
// the events after it.
std::vector<int64_t> Recovered(EventLog& log) {
  const absl::StatusOr<std::optional<v1::StoredState>> snapshot = log.ReadSnapshot();
  EXPECT_TRUE(snapshot.ok()) << snapshot.status();
  if (!snapshot.ok()) return {};
  std::vector<int64_t> sequences = {*snapshot ? (*snapshot)->sequence() : 0};
  const absl::Status status = log.Replay(
      sequences[0], [&](const v1::DurableEvent& event) { sequences.push_back(event.sequence()); });
  EXPECT_TRUE(status.ok()) << status;
  return sequences;
}

// Runs statements on the log's file, which nobody else has open.
void Meddle(const std::string& directory, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((directory + "/events.db").c_str(), &database), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(database);
}

TEST(EventLog, ASnapshotStandsForTheEventsBeforeIt) {
  const TemporaryDirectory directory;
  {
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    EXPECT_EQ(Recovered(*log), (std::vector<int64_t>{0}));
    ASSERT_TRUE(log->Commit(EventBatch(1, 3)).ok());
    ASSERT_TRUE(log->Compact(StateAfter(3)).ok());
    // Until a second one, nothing is dropped for the first.
    EXPECT_THAT(ReplayedSequences(*log), SizeIs(3));
    ASSERT_TRUE(log->Commit(EventBatch(4, 2)).ok());
    EXPECT_EQ(Recovered(*log), (std::vector<int64_t>{3, 4, 5}));
    ASSERT_TRUE(log->Compact(StateAfter(5)).ok());
    ASSERT_TRUE(log->Commit(EventBatch(6, 1)).ok());
    ASSERT_TRUE(log->Compact(StateAfter(6)).ok());
    ASSERT_TRUE(log->Commit(EventBatch(7, 2)).ok());
  }
  const std::unique_ptr<EventLog> log = OpenLog(directory.path());
  EXPECT_EQ(Recovered(*log), (std::vector<int64_t>{6, 7, 8}));
  EXPECT_EQ((*log->ReadSnapshot())->workers_size(), 6);
  // The one before it could take its place.
  std::vector<int64_t> kept;
  ASSERT_TRUE(
      log->Replay(5, [&](const v1::DurableEvent& event) { kept.push_back(event.sequence()); })
          .ok());
  EXPECT_EQ(kept, (std::vector<int64_t>{6, 7, 8}));
  EXPECT_EQ(log->Replay(4, [](const v1::DurableEvent&) {}).code(), absl::StatusCode::kDataLoss);
}

TEST(EventLog, TheFeedStaysWhenTheLogIsCompacted) {
  const std::unique_ptr<EventLog> log = OpenLog(":memory:");
  LogBatch batch = EventBatch(1, 2);
  batch.feed = {StepEntry("a-1", 1, 1), StepEntry("a-1", 2, 2)};
  batch.acknowledgements = {{WorkerId("w1"), Incarnation(1), 41},
                            {WorkerId("gone"), Incarnation(1), 7}};
  ASSERT_TRUE(log->Commit(batch).ok());
  ASSERT_TRUE(log->Compact(StateAfter(2)).ok());
  EXPECT_THAT(*log->ReadFeed(JobId("a-1"), 0, 100), SizeIs(2));
  const std::vector<Acknowledgement> kept = *log->Acknowledgements();
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept[0].worker, WorkerId("w1"));
}

TEST(EventLog, ADamagedSnapshotIsPassedOverForTheOneBefore) {
  const TemporaryDirectory directory;
  {
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    for (const int64_t last : {2, 4, 6}) {
      ASSERT_TRUE(log->Commit(EventBatch(last - 1, 2)).ok());
      ASSERT_TRUE(log->Compact(StateAfter(last)).ok());
    }
  }
  // A sound message that is not what was written: only the checksum tells.
  Meddle(directory.path(),
         "UPDATE snapshots SET payload = (SELECT payload FROM snapshots WHERE sequence = 4) "
         "WHERE sequence = 6");
  {
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    EXPECT_EQ(Recovered(*log), (std::vector<int64_t>{4, 5, 6}));
    // It is not one of the two that count.
    ASSERT_TRUE(log->Commit(EventBatch(7, 1)).ok());
    ASSERT_TRUE(log->Compact(StateAfter(7)).ok());
    EXPECT_THAT(Recovered(*log), SizeIs(1));
    EXPECT_TRUE(log->Replay(4, [](const v1::DurableEvent&) {}).ok());
  }
  Meddle(directory.path(), "UPDATE snapshots SET checksum = checksum + 1");
  const std::unique_ptr<EventLog> log = OpenLog(directory.path());
  const absl::Status lost = log->ReadSnapshot().status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss) << lost;
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("events.db is damaged: no snapshot"), HasSubstr("backup")));
  ExpectOneSentence(lost);
}

TEST(EventLog, WithAllEventsADamagedFirstSnapshotCostsNothing) {
  const TemporaryDirectory directory;
  {
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    ASSERT_TRUE(log->Commit(EventBatch(1, 2)).ok());
    ASSERT_TRUE(log->Compact(StateAfter(2)).ok());
  }
  Meddle(directory.path(), "UPDATE snapshots SET payload = x'00'");
  EXPECT_EQ(Recovered(*OpenLog(directory.path())), (std::vector<int64_t>{0, 1, 2}));
}

TEST(EventLog, ALogOfBeforeSnapshotsOpensAsItIs) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(OpenLog(directory.path())->Commit(EventBatch(1, 3)).ok());
  Meddle(directory.path(), "DROP TABLE snapshots; PRAGMA user_version = 1");
  const std::unique_ptr<EventLog> log = OpenLog(directory.path());
  EXPECT_EQ(Recovered(*log), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(log->Compact(StateAfter(3)).ok());
}

TEST(EventLog, TheWriteAheadLogDoesNotGrow) {
  const TemporaryDirectory directory;
  const std::unique_ptr<EventLog> log = OpenLog(directory.path());
  const std::string file = directory.path() + "/events.db-wal";
  uintmax_t largest = 0;
  for (int64_t batch = 0; batch < 60; ++batch) {
    ASSERT_TRUE(log->Commit(EventBatch(1 + 2000 * batch, 2000)).ok());
    largest = std::max(largest, std::filesystem::file_size(file));
  }
  // SQLite takes it over after a thousand pages.
  EXPECT_LT(largest, uintmax_t{6} << 20);
  ASSERT_TRUE(log->Compact(StateAfter(3)).ok());
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
}

// Ends this process at the so-many-th thing that the database does from now on: the begin or the
// end of a statement.
int deadly = 0;
int Count(unsigned, void*, void*, void*) {
  if (deadly > 0 && --deadly == 0) raise(SIGKILL);
  return 0;
}
int Trace(sqlite3* database, const char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(database, SQLITE_TRACE_STMT | SQLITE_TRACE_PROFILE, Count, nullptr);
}

TEST(EventLog, ACompactionIsWholeOrHasNotBeen) {
  int survived = 0;
  int point = 1;
  for (; survived == 0; ++point) {
    ASSERT_LT(point, 100);
    const TemporaryDirectory directory;
    const pid_t child = fork();
    if (child == 0) {
      sqlite3_auto_extension(reinterpret_cast<void (*)()>(Trace));
      absl::StatusOr<std::unique_ptr<EventLog>> log = EventLog::Open(directory.path());
      if (!log.ok()) _exit(1);
      for (const int64_t last : {2, 4}) {
        LogBatch batch = EventBatch(last - 1, 2);
        batch.acknowledgements = {{WorkerId("w1"), Incarnation(1), 41},
                                  {WorkerId("gone"), Incarnation(1), 7}};
        if (!(*log)->Commit(batch).ok()) _exit(1);
        if (last == 2 && !(*log)->Compact(StateAfter(2)).ok()) _exit(1);
      }
      deadly = point;
      const bool compacted = (*log)->Compact(StateAfter(4)).ok();
      deadly = 0;
      _exit(compacted ? 0 : 2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
    survived += !WIFSIGNALED(status);
    const std::unique_ptr<EventLog> log = OpenLog(directory.path());
    const std::vector<int64_t> recovered = Recovered(*log);
    const bool done = recovered == std::vector<int64_t>{4};
    EXPECT_EQ(recovered, done ? std::vector<int64_t>{4} : (std::vector<int64_t>{2, 3, 4})) << point;
    // The events go with it, and what is to be forgotten.
    EXPECT_TRUE(log->Replay(2, [](const v1::DurableEvent&) {}).ok()) << point;
    EXPECT_EQ(log->Replay(0, [](const v1::DurableEvent&) {}).ok(), !done) << point;
    EXPECT_THAT(*log->Acknowledgements(), SizeIs(done ? 1 : 2)) << point;
    // And it can be done again.
    EXPECT_TRUE(log->Compact(StateAfter(4)).ok()) << point;
    EXPECT_EQ(Recovered(*log), (std::vector<int64_t>{4})) << point;
  }
  // Begin, the statements of all parts, commit, checkpoint.
  EXPECT_GT(point, 15);
}

}  // namespace
}  // namespace sherd
