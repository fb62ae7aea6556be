// What workers report, in and out of order, and what no worker in order says.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/fleet_fixture.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(FleetTest, AnAssignThatABrokenStreamLostIsSentAgain) {
  const auto third = Connect("w2");
  Disconnect(third);
  const JobId next = Submit("next", 1);
  EXPECT_EQ(Job(next).state, v1::JOB_STATE_FORMING);
  const auto again = Connect("w2");
  EXPECT_THAT(again->Kinds(), ElementsAre("welcome", "assign"));
}

TEST_F(FleetTest, WhatNoRankInOrderSaysEndsTheRank) {  // F55
  Cancel(job_);
  struct Case {
    std::string said;
    v1::RankReport report;
  };
  const auto finished = [&](int64_t steps) {
    v1::RankReport report = FinishedReport(JobId(), 0);
    report.mutable_finished()->set_steps(steps);
    return report;
  };
  v1::RankReport crowded = ReadyReport(JobId(), 0);
  for (int i = 0; i < 65; ++i) {
    (*crowded.mutable_ledger()->mutable_memory())[absl::StrCat("pool ", i)].set_measured(1);
  }
  uint64_t worker = 10;
  v1::RankReport coloured = ReadyReport(JobId(), 0);
  (*coloured.mutable_ledger()->mutable_wire())["\x1b[31m"].mutable_bytes();
  v1::RankReport on_host = ReadyReport(JobId(), 0);
  (*on_host.mutable_ledger()->mutable_host_memory())["\x1b[31m"].set_measured(1);
  for (const auto& [said, report] : std::vector<Case>{
           {"step 3 came after step 3", StepReportOf(JobId(), 0, 3, 2.5)},
           {"step 2 came after step 3", StepReportOf(JobId(), 0, 2, 2.5)},
           {"step -1 is not of a job of", StepReportOf(JobId(), 0, -1, 2.5)},
           {"step 1000000000 is not of a job of", StepReportOf(JobId(), 0, 1'000'000'000, 2.5)},
           {"an end after step -7 is not", finished(-7)},
           {"an end after step 1000000000 is not", finished(1'000'000'000)},
           {"its ledger has more lines", crowded},
           {"its ledger has more lines", coloured},
           {"its ledger has more lines", on_host},
       }) {
    const auto link = Connect(absl::StrCat("w", ++worker));
    const JobId job = Submit(absl::StrCat("r", worker), 1);
    Report(link, 1, ReadyReport(job, 0));
    Report(link, 2, StepReportOf(job, 0, 3, 2.5));
    v1::RankReport bad = report;
    bad.set_job_id(job.value());
    Report(link, 3, bad);
    EXPECT_EQ(Job(job).state, v1::JOB_STATE_RECOVERING);
    EXPECT_THAT(Job(job).reason, HasSubstr(absl::StrCat("protocol error: ", said)));
    EXPECT_THAT(link->Kinds(), testing::Contains("abort"));
    Cancel(job);
    Report(link, 4, ReleasedReport(job, 0));
    EXPECT_FALSE(Worker(absl::StrCat("w", worker)).seat);
    Disconnect(link);
    Advance(absl::Seconds(1));
  }
}

TEST_F(FleetTest, ARankIsReadyBeforeItWorks) {  // F55
  for (const bool ends : {false, true}) {
    const std::string name = ends ? "w8" : "w9";
    const auto link = Connect(name);
    const JobId job = Submit(name, 1);
    Report(link, 1, ends ? FinishedReport(job, 0) : StepReportOf(job, 0, 1, 2.5));
    EXPECT_EQ(Job(job).state, v1::JOB_STATE_RECOVERING);
    EXPECT_THAT(Job(job).reason, HasSubstr("before it was ready"));
    Cancel(job);
    Report(link, 2, ReleasedReport(job, 0));
    Disconnect(link);
  }
}

TEST_F(FleetTest, ReportsAreNumberedWithoutAGap) {  // F55
  Report(second_, 7, StepReportOf(job_, 1, 1, 2.5));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("report 7 came after report 1"));
}

TEST_F(FleetTest, NoNumberIsSoLargeThatNoneCanFollow) {  // F55
  const auto link = Connect("w9");
  const JobId job = Submit("r", 1);
  Report(link, ~uint64_t{0}, ReadyReport(job, 0));
  EXPECT_EQ(Job(job).state, v1::JOB_STATE_RECOVERING);
  Cancel(job);
  Report(link, 1, ReleasedReport(job, 0));
  EXPECT_FALSE(Worker("w9").seat);
}

TEST_F(FleetTest, TheWordsOfAWorkerAreCutAndPrintable) {  // F52, F55
  v1::RankReport line = ReadyReport(job_, 0);
  line.mutable_log()->set_text(std::string("\x1b[2J\a") + std::string(1 << 20, 'x'));
  Report(first_, 2, line);
  const std::string logged = Feed(job_).back().log().text();
  EXPECT_LE(logged.size(), 4096u);
  EXPECT_THAT(logged, testing::StartsWith("\\x1b[2J\\x07xxx"));
  v1::RankReport failed = FailedReport(job_, 0, "bad\n" + std::string(3'900'000, 'y'), -1);
  failed.mutable_failed()->set_operation(std::string(1 << 20, '\b'));
  Report(first_, 3, failed);
  EXPECT_LE(Job(job_).reason.size(), 5000u);
  EXPECT_THAT(Job(job_).reason, AllOf(HasSubstr("bad\\nyyy"), HasSubstr("more bytes left out)")));
  EXPECT_LE(Job(job_).ranks[0].reason.size(), 4096u);
}

// The coordinator lost the end of its log, and with it the last report, which it had acknowledged.
TEST_F(FleetTest, ARankWhoseEndIsLostEndsItsJob) {
  Restart();
  const auto first = Connect(HelloWithRank("w0", 0));
  const auto second = Connect("w1");
  Live(absl::Milliseconds(2700), {first, second});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live(absl::Milliseconds(600), {first, second});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, AllOf(HasSubstr("rank 1 on worker w1"), HasSubstr("is lost")));
  EXPECT_EQ(first->Kinds().back(), "abort");
  Report(second, 9, ReleasedReport(job_, 1));
  EXPECT_FALSE(Worker("w1").seat);
}

TEST_F(FleetTest, ALastReportThatComesAfterTheHelloCounts) {
  Restart();
  const auto first = Connect(HelloWithRank("w0", 0));
  const auto second = Connect("w1");
  Report(second, 2, FinishedReport(job_, 1));
  Report(first, 2, FinishedReport(job_, 0));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_SUCCEEDED);
  // Nor does the wait end what the worker does next.
  const JobId next = Submit("next", 2);
  Live(absl::Seconds(4), {first, second});
  EXPECT_EQ(Job(next).state, v1::JOB_STATE_FORMING);
}

TEST_F(FleetTest, AnImpostorLearnsNoSecretAndCrashesNothing) {  // F55
  Connect("w2");
  Connect("w3");
  const JobId forming = Submit("next", 2);
  ASSERT_EQ(Job(forming).state, v1::JOB_STATE_FORMING);
  for (const int rank : {0, 1, 2, -1, 1 << 30}) {
    v1::Hello hello = HelloOf(absl::StrCat("x", rank), 1);
    hello.set_job_id(forming.value());
    hello.set_epoch(1);
    hello.set_rank(rank);
    Connect(hello);
    // Again, now as one that has forgotten its rank, or that insists.
    EXPECT_THAT(Connect(hello)->Kinds(), testing::Not(testing::Contains("assign")));
    hello.clear_job_id();
    EXPECT_THAT(Connect(hello)->Kinds(), testing::Not(testing::Contains("assign")));
  }
  EXPECT_EQ(Job(forming).state, v1::JOB_STATE_FORMING);
}

// A log of a version that believed such a Hello gives a state in which nobody has the seat.
TEST_F(FleetTest, ALogThatHoldsAnImpostorsHelloIsReplayed) {  // F55
  v1::Hello hello = HelloOf("x", 1);
  hello.set_job_id(job_.value());
  hello.set_epoch(1);
  hello.set_rank(1 << 30);
  Connect(hello);
  Restart();
  hello.clear_job_id();
  EXPECT_THAT(Connect(hello)->Kinds(), ElementsAre("welcome"));
  EXPECT_FALSE(Worker("x").seat);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

}  // namespace
}  // namespace sherd
