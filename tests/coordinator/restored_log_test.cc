// A coordinator on a backup of its log that is older than its workers, as they hear of it.

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/controller_fixture.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RestoredLogTest : public ControllerTest {
 protected:
  void Say(const std::string& worker, const v1::RankReport& report) {
    Report(links_.at(worker), ++sequences_[worker], report);
  }

  v1::Hello HelloWithRank(const std::string& worker, const JobId& job, int rank, int64_t epoch) {
    v1::Hello hello = HelloOf(worker, 1);
    hello.set_job_id(job.value());
    hello.set_epoch(epoch);
    hello.set_rank(rank);
    return hello;
  }

  // The log as it is now, as another one.
  std::unique_ptr<EventLog> Backup() {
    std::unique_ptr<EventLog> copy = *EventLog::Open(":memory:");
    LogBatch batch;
    EXPECT_TRUE(
        log_->Replay(0, [&](const v1::DurableEvent& event) { batch.events.push_back(event); })
            .ok());
    for (const auto& [id, job] : controller_->state().jobs) {
      for (v1::JobEvent& entry : Feed(id)) batch.feed.push_back(std::move(entry));
    }
    EXPECT_TRUE(copy->Commit(batch).ok());
    return copy;
  }

  void RestoreFrom(std::unique_ptr<EventLog> backup) {
    controller_.reset();
    log_ = std::move(backup);
    Restart();
  }

  std::map<std::string, uint64_t> sequences_;
};

TEST_F(RestoredLogTest, RanksOfALaterEpochAreTakenOnAndTheJobGoesOn) {
  for (const char* worker : {"w0", "w1"}) Connect(worker);
  const JobId job = Submit("request", 2);
  for (const int rank : {0, 1}) Say("w" + std::to_string(rank), ReadyReport(job, rank));
  Say("w0", StepReportOf(job, 0, 1, 4.0));
  std::unique_ptr<EventLog> backup = Backup();
  // Rank 1 fails, and epoch 2 trains to step 7.
  Say("w1", FailedReport(job, 1, "no luck", -1));
  for (const int rank : {0, 1}) Say("w" + std::to_string(rank), ReleasedReport(job, rank));
  ASSERT_EQ(Job(job).epoch, Epoch(2));
  RestoreFrom(std::move(backup));
  ASSERT_EQ(Job(job).epoch, Epoch(1));

  EXPECT_THAT(Connect(HelloWithRank("w0", job, 0, 2))->Kinds(), ElementsAre("welcome", "abort"));
  EXPECT_EQ(links_.at("w0")->sent.back().abort().epoch(), 2);
  EXPECT_THAT(Connect(HelloWithRank("w1", job, 1, 2))->Kinds(), ElementsAre("welcome", "abort"));
  for (const int rank : {0, 1}) {
    v1::RankReport released = ReleasedReport(job, rank, 2);
    released.mutable_released()->set_step(7);
    for (const int owner : {0, 1}) {
      *released.mutable_released()->add_holdings() = HoldingOf(2, 2, owner, 7);
    }
    Say("w" + std::to_string(rank), released);
  }
  EXPECT_EQ(Job(job).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(Job(job).epoch, Epoch(3));
  EXPECT_EQ(Job(job).restore.step, 7);
  EXPECT_EQ(links_.at("w0")->sent.back().assign().epoch(), 3);
  std::string lines;
  for (const v1::JobEvent& entry : Feed(job)) lines += entry.log().text() + "\n";
  EXPECT_THAT(lines, HasSubstr("the coordinator's log, which is older, ends with epoch 1"));
}

// Whoever comes first: one that epoch 1 does not know, then a new process in the place of a rank.
TEST_F(RestoredLogTest, AnEpochThatFollowsOneThatTheLogDoesNotHaveIsToldOfOnce) {
  for (const char* worker : {"w0", "w1", "w2", "w3"}) Connect(worker);
  const JobId job = Submit("request", 2);
  const std::string leaver = Job(job).ranks[1].worker.value();
  const std::string stayer = Job(job).ranks[0].worker.value();
  for (const int rank : {0, 1}) Say(Job(job).ranks[rank].worker.value(), ReadyReport(job, rank));
  Say(stayer, StepReportOf(job, 0, 1, 4.0));
  std::unique_ptr<EventLog> backup = Backup();
  ReportExit(leaver, 1, SIGKILL);
  Say(stayer, ReleasedReport(job, 0));
  ASSERT_EQ(Job(job).epoch, Epoch(2));
  const std::string stranger = Job(job).ranks[1].worker.value();
  std::string spare;
  for (const char* worker : {"w0", "w1", "w2", "w3"}) {
    if (worker != leaver && worker != stayer && worker != stranger) spare = worker;
  }
  RestoreFrom(std::move(backup));

  Connect(spare);
  Connect(HelloWithRank(stranger, job, 1, 2));
  EXPECT_EQ(Job(job).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(links_.at(spare)->Kinds(), Not(Contains("abort")));
  Connect(leaver, 2);
  Advance(absl::Milliseconds(501));
  EXPECT_THAT(Job(job).reason, HasSubstr("a new process took the worker's place"));
  Connect(HelloWithRank(stayer, job, 0, 2));
  EXPECT_THAT(links_.at(stayer)->Kinds(), Contains("abort"));
  for (const auto& [worker, rank] : {std::pair(stayer, 0), std::pair(stranger, 1)}) {
    v1::RankReport released = ReleasedReport(job, rank, 2);
    released.mutable_released()->set_step(7);
    for (const int owner : {0, 1}) {
      *released.mutable_released()->add_holdings() = HoldingOf(2, 2, owner, 7);
    }
    Say(worker, released);
  }
  // Who may hold something was asked, and is waited for.
  EXPECT_EQ(Job(job).epoch, Epoch(1));
  for (const auto& [worker, link] :
       {std::pair(spare, links_.at(spare)), std::pair(leaver, links_.at(leaver))}) {
    EXPECT_THAT(link->Kinds(), Contains("report holdings")) << worker;
    v1::SessionRequest nothing;
    nothing.set_sequence(++sequences_[worker == leaver ? "its new process" : worker]);
    nothing.mutable_holdings()->set_job_id(job.value());
    nothing.mutable_holdings()->set_epoch(1);
    Tell(link, nothing);
  }
  EXPECT_EQ(Job(job).epoch, Epoch(3)) << Job(job).reason;
  EXPECT_EQ(Job(job).restore.step, 7);
  int told = 0;
  for (const v1::JobEvent& entry : Feed(job)) {
    if (entry.log().text().find("log, which is older, ends with epoch 1") != std::string::npos) {
      ++told;
    }
  }
  EXPECT_EQ(told, 1);
}

// A stream that breaks meanwhile is told again, and not asked as one that the log knows.
TEST_F(RestoredLogTest, WhoWasToldToStopIsToldAgain) {
  for (const char* worker : {"w0", "w1"}) Connect(worker);
  const JobId job = Submit("request", 2);
  RestoreFrom(Backup());
  Connect(HelloWithRank("w0", job, 0, 5));
  EXPECT_THAT(Connect(HelloWithRank("w0", job, 0, 5))->Kinds(), ElementsAre("welcome", "abort"));
}

TEST_F(RestoredLogTest, OfAJobThatItDoesNotKnowTheWorkersBecomeIdle) {
  Connect("w0");
  std::unique_ptr<EventLog> backup = Backup();
  const JobId lost = Submit("request", 1);
  RestoreFrom(std::move(backup));
  EXPECT_THAT(Connect(HelloWithRank("w0", lost, 0, 1))->Kinds(), ElementsAre("welcome", "abort"));
  // Another job does not get the number, nor the worker before it is free.
  const JobId other = Submit("other", 1);
  EXPECT_NE(other, lost);
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("assign")));
  Say("w0", ReleasedReport(lost, 0));
  EXPECT_THAT(links_.at("w0")->Kinds(), Contains("assign"));
}

}  // namespace
}  // namespace sherd
