// A coordinator whose log is compacted, and that begins anew on what is left of it.

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rules.h"
#include "coordinator/core/snapshot.h"
#include "coordinator/runtime/journal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/controller_fixture.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class CompactionTest : public ControllerTest {
 protected:
  // A life that compacts after so many events, or never.
  void Begin(int64_t compact_after) {
    controller_.reset();
    log_ = *EventLog::Open(":memory:");
    options_.compact_after = compact_after;
    Restart();
  }

  // Lets what is done now and then be done.
  void Tidy() { Advance(absl::Milliseconds(301)); }

  // A job that loses a rank twice, over lives of the coordinator; all that its watchers see.
  std::string LiveThrough(bool restarts) {
    for (const char* worker : {"w0", "w1", "w2"}) Connect(worker);
    v1::SubmitRequest request = RequestOf("request", 2);
    request.mutable_spec()->mutable_elastic()->set_min_workers(1);
    const JobId id = Submit(request);
    std::map<std::string, uint64_t> sequences;
    const auto say = [&](const std::string& worker, const v1::RankReport& report) {
      Report(links_.at(worker), ++sequences[worker], report);
      Tidy();
      if (!restarts) return;
      const std::vector<std::string> alive = [&] {
        std::vector<std::string> names;
        for (const auto& [name, state] : controller_->state().workers) {
          if (state.alive) names.push_back(name.value());
        }
        return names;
      }();
      const std::string before = Describe(controller_->state());
      Restart();
      EXPECT_EQ(Describe(controller_->state()), before);
      for (const std::string& name : alive) {
        v1::Hello hello = HelloOf(name, 1);
        const std::optional<Seat>& seat = Worker(name).seat;
        if (seat) {
          hello.set_job_id(seat->job.value());
          hello.set_epoch(seat->epoch.value());
          hello.set_rank(seat->rank);
        }
        Connect(hello);
      }
    };
    say("w0", ReadyReport(id, 0));
    say("w1", ReadyReport(id, 1));
    for (int64_t step = 1; step <= 3; ++step) say("w0", StepReportOf(id, 0, step, 4.0));
    ReportExit("w1", 1, SIGKILL);
    v1::RankReport released = ReleasedReport(id, 0);
    released.mutable_released()->set_step(3);
    for (int owner = 0; owner < 2; ++owner) {
      *released.mutable_released()->add_holdings() = HoldingOf(1, 2, owner, 3);
    }
    say("w0", released);
    EXPECT_EQ(Job(id).epoch, Epoch(2));
    say("w0", ReadyReport(id, 0, 2));
    say("w2", ReadyReport(id, 1, 2));
    for (int64_t step = 4; step <= 6; ++step) say("w0", StepReportOf(id, 0, step, 3.0, 2));
    std::string seen;
    // As a watcher reads that has lost its connection after every entry.
    for (int64_t after = 0;; ++after) {
      std::vector<v1::JobEvent> next = *log_->ReadFeed(id, after, 1);
      if (next.empty()) break;
      EXPECT_EQ(next[0].sequence(), after + 1);
      next[0].clear_time_unix_ms();
      if (next[0].has_epoch()) next[0].mutable_epoch()->clear_recovery_seconds();
      absl::StrAppend(&seen, next[0].ShortDebugString(), "\n");
    }
    return seen;
  }
};

TEST_F(CompactionTest, WatchersSeeNothingOfItWhenTheCoordinatorBeginsAnew) {
  Begin(/*compact_after=*/1);
  const std::string compacted = LiveThrough(/*restarts=*/true);
  ASSERT_TRUE((*log_->ReadSnapshot()).has_value());
  // The first events are gone.
  EXPECT_FALSE(log_->Replay(0, [](const v1::DurableEvent&) {}).ok());
  Begin(/*compact_after=*/1'000'000);
  EXPECT_EQ(compacted, LiveThrough(/*restarts=*/false));
  EXPECT_FALSE((*log_->ReadSnapshot()).has_value());
}

TEST_F(CompactionTest, TheLogDoesNotGrow) {
  Begin(/*compact_after=*/10);
  for (uint64_t life = 1; life <= 100; ++life) {
    Connect("w0", life);
    ReportExit("w0", life, SIGKILL);
    Tidy();
  }
  int64_t events = 0;
  const int64_t covered = (*log_->ReadSnapshot())->sequence();
  ASSERT_GT(covered, 190);
  ASSERT_TRUE(log_->Replay(covered - 10, [&](const v1::DurableEvent&) { ++events; }).ok());
  EXPECT_LE(events, 22);
  EXPECT_FALSE(log_->Replay(covered - 30, [](const v1::DurableEvent&) {}).ok());
}

TEST_F(CompactionTest, AForgottenJobIsNotFoundAndSaysWhy) {
  Begin(/*compact_after=*/100);
  const JobId first = Submit("first", 1);
  Cancel(first);
  for (size_t number = 0; number < kEndedJobsKept; ++number) {
    Cancel(Submit(absl::StrCat("r", number), 1));
  }
  const auto find = [&](const JobId& id) {
    absl::Status found = absl::UnknownError("no answer");
    controller_->jobs().GetJob(
        id, [&](absl::StatusOr<v1::GetJobResponse> answer) { found = answer.status(); });
    EndTurn();
    return found;
  };
  EXPECT_TRUE(find(first).ok());
  ASSERT_THAT(Feed(first), SizeIs(4));
  clock_.Advance(absl::Milliseconds(kEndedToldMs + 1));
  Connect("w0");
  const absl::Status gone = find(first);
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()),
              AllOf(HasSubstr("job tiny-1 is forgotten"), HasSubstr("1000")));
  EXPECT_THAT(std::string(find(JobId("tiny-999999")).message()), HasSubstr("no job has the id"));
  absl::Status read;
  controller_->jobs().ReadFeed(first, 0, 10, absl::Seconds(1),
                               [&](absl::StatusOr<FeedChunk> chunk) { read = chunk.status(); });
  EndTurn();
  EXPECT_EQ(read.code(), absl::StatusCode::kNotFound);
  Tidy();
  EXPECT_THAT(Feed(first), SizeIs(0));
  // A retry so late is another job.
  EXPECT_NE(Submit("first", 1), first);
}

// Versions may come and go: what one of them has read by its rules, no other reads by its own.
TEST_F(CompactionTest, AfterAnEndInOrderNothingIsReplayed) {
  Begin(/*compact_after=*/1'000'000);
  Connect("w0");
  const JobId id = Submit("request", 1);
  const std::string before = Describe(controller_->state());
  controller_->Stop();
  controller_->Seal();
  const std::optional<v1::StoredState> snapshot = *log_->ReadSnapshot();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->sequence(), controller_->state().sequence);
  int64_t events = 0;
  const auto count = [&](const v1::DurableEvent& event) {
    EXPECT_EQ(event.rules(), kRules);
    ++events;
  };
  ASSERT_TRUE(log_->Replay(0, count).ok());
  EXPECT_EQ(events, controller_->state().sequence) << "all of the older snapshot's are kept";
  ASSERT_TRUE(log_->Replay(snapshot->sequence(), [&](const v1::DurableEvent&) { FAIL(); }).ok());
  Restart();
  EXPECT_EQ(Describe(controller_->state()), before);
  EXPECT_EQ(Job(id).state, v1::JOB_STATE_FORMING);
  // Nothing has come since: the newest of two snapshots is not written over for nothing.
  controller_->Seal();
  EXPECT_EQ((*log_->ReadSnapshot())->sequence(), snapshot->sequence());
}

class RulesOfTheLog : public CompactionTest {
 protected:
  // Reads a log whose second event is of these rules.
  absl::Status RecoverFrom(int32_t rules, bool snapshot) {
    Begin(/*compact_after=*/1'000'000);
    LogBatch batch;
    State state;
    for (int64_t sequence = 1; sequence <= 2; ++sequence) {
      v1::DurableEvent event = Joined(absl::StrCat("w", sequence), 1);
      event.set_sequence(sequence);
      event.set_rules(sequence == 2 ? rules : kRules);
      Apply(event, state);
      batch.events.push_back(event);
    }
    EXPECT_TRUE(log_->Commit(batch).ok());
    if (snapshot) {
      EXPECT_TRUE(log_->Compact(WriteState(state)).ok());
    }
    Journal journal(*log_, clock_, [](const v1::JobEvent&) {});
    const absl::Status status = journal.Recover();
    if (status.ok()) {
      EXPECT_EQ(journal.state().workers.size(), 2u);
    }
    return status;
  }
};

TEST_F(RulesOfTheLog, EventsOfOtherRulesAreRefusedWithWhatToDo) {
  for (const int32_t rules : {kRules + 1, kRules - 1}) {
    if (rules == 0) continue;
    const absl::Status status = RecoverFrom(rules, /*snapshot=*/false);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("event 2 by rules"), HasSubstr("once more and stop it with SIGTERM")));
  }
}

TEST_F(RulesOfTheLog, ASnapshotStandsForThem) {
  EXPECT_TRUE(RecoverFrom(kRules + 1, /*snapshot=*/true).ok());
}

// Coordinators before the first number wrote none.
TEST_F(RulesOfTheLog, NoRulesAreTheFirst) {
  EXPECT_EQ(RecoverFrom(0, /*snapshot=*/false).ok(), kRules == 1);
}

// The process died after the event that made it forget was stored, and before the feed was dropped.
TEST_F(CompactionTest, AFeedWithoutAJobIsDroppedByTheNextLife) {
  Begin(/*compact_after=*/100);
  LogBatch orphan;
  for (int64_t sequence = 1; sequence <= 1500; ++sequence) {
    v1::JobEvent entry;
    entry.set_job_id("tiny-0");
    entry.set_sequence(sequence);
    entry.mutable_step()->set_step(sequence);
    orphan.feed.push_back(entry);
  }
  ASSERT_TRUE(log_->Commit(orphan).ok());
  Restart();
  Tidy();
  Tidy();
  EXPECT_THAT(*log_->SummarizeFeeds(), SizeIs(0));
}

}  // namespace
}  // namespace sherd
