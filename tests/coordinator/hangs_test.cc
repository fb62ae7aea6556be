// Who is to blame when nothing moves.

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/runtime/hang_verdict.h"
#include "coordinator/runtime/state_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/elastic_fixture.h"

namespace sherd {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// The job has just completed step 2.
class HangsTest : public ElasticTest {
 protected:
  void SetUp() override {
    ElasticTest::SetUp();
    Say("w0", StepReportOf(job_, 0, 2, 3.5));
    stepped_ = clock_.Now();
  }

  // Rank 0 waits for rank 1, which computes.
  void Answer(const std::string& round) {
    Locate("w0", 0, "exchange", /*waiting=*/true, {1});
    Locate("w1", 1, absl::StrCat("forward h.0 round ", round), /*waiting=*/false, {});
  }

  void AwaitQuestion() {
    const int64_t before = TimesAsked("w0");
    for (int i = 0; i < 400 && TimesAsked("w0") == before; ++i) Live(absl::Milliseconds(300));
    ASSERT_GT(TimesAsked("w0"), before);
  }

  // At the next look. How long it was until then.
  absl::Duration AnswerTwice(const std::string& round) {
    const absl::Time start = clock_.Now();
    AwaitQuestion();
    const absl::Duration waited = clock_.Now() - start;
    for (int probe = 0; probe < 2; ++probe) {
      Answer(round);
      Advance(absl::Milliseconds(500));
    }
    return waited;
  }

  absl::Time stepped_;
};

TEST_F(ElasticTest, AHangNamesRankWorkerStepAndOperation) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Seconds(29));
  // At half of the time.
  EXPECT_EQ(TimesAsked("w0"), 2);
  Advance(absl::Milliseconds(1800));
  ASSERT_EQ(TimesAsked("w0"), 3);
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, "exchange", /*waiting=*/true, {1});
    Locate("w1", 1, "backward h.3 round 0", /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason,
              HasSubstr("rank 1 on worker w1 hangs after step 1 (backward h.3 round 0)"));
  EXPECT_EQ(links_.at("w0")->Kinds().back(), "abort");
}

TEST_F(ElasticTest, WhomTheOthersMissIsToBlameWhenAllWait) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Milliseconds(30'900));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, "exchange", /*waiting=*/true, {1});
    Locate("w1", 1, "gather h.1", /*waiting=*/true, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_THAT(Job(job_).reason, HasSubstr("the others wait for rank 1 on worker w1"));
}

// Rank 0 waits for one that only waits itself, in another group.
TEST(HangVerdict, WhoOnlyWaitsForAnotherIsNotToBlame) {
  JobRecord job;
  job.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) job.ranks[rank].worker = WorkerId(absl::StrCat("w", rank));
  std::map<int, v1::RankPosition> positions;
  for (int rank = 0; rank < 3; ++rank) {
    positions[rank].set_waiting(true);
    if (rank < 2) positions[rank].add_missing(rank + 1);
  }
  EXPECT_EQ(JudgeHang(job, positions, absl::Seconds(30)).rank, 2);
  // Who has finished works on nothing, and says so by saying nothing.
  job.ranks[2].left = true;
  positions.erase(2);
  positions[1].clear_missing();
  EXPECT_EQ(JudgeHang(job, positions, absl::Seconds(30)).rank, 1);
}

TEST_F(ElasticTest, RanksThatMoveDoNotHang) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Milliseconds(30'900));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, probe == 0 ? "forward h.0" : "forward h.1", /*waiting=*/false, {});
    Locate("w1", 1, "exchange", /*waiting=*/true, {0});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

// It may compute at the moment: its lease says whether it lives.
TEST_F(HangsTest, WhoDoesNotAnswerAtOnceIsWaitedFor) {
  Live(absl::Milliseconds(30'900));
  Answer("3");
  Advance(absl::Milliseconds(500));
  Locate("w0", 0, "exchange", /*waiting=*/true, {1});
  Live(absl::Milliseconds(1500));
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Answer("4");
  Live(absl::Seconds(3));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(HangsTest, WhoNeverAnswersIsToBlame) {
  Live(absl::Milliseconds(30'900));
  Answer("3");
  Advance(absl::Milliseconds(500));
  Locate("w0", 0, "exchange", /*waiting=*/true, {1});
  Live(absl::Milliseconds(1800));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live(absl::Milliseconds(1800));
  EXPECT_THAT(Job(job_).reason, HasSubstr("rank 1 on worker w1 does not say where it is"));
}

// As on a host that lets them compute now and then: not in the moment in which they are asked.
TEST_F(HangsTest, RanksThatMoveNowAndThenDoNotHang) {
  EXPECT_GT(AnswerTwice("3"), absl::Seconds(15));
  EXPECT_GT(AnswerTwice("5"), absl::Seconds(13));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  // It may have stopped right after the first time.
  EXPECT_LT(AnswerTwice("5"), absl::Seconds(1));
  EXPECT_LT(AnswerTwice("5"), absl::Seconds(15));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("rank 1 on worker w1 hangs"));
  // From the last step on, and not from when the ranks were last seen moving.
  const int64_t seconds = absl::ToInt64Seconds(clock_.Now() - stepped_);
  EXPECT_THAT(Job(job_).reason,
              AnyOf(HasSubstr(absl::StrCat("no step was completed for ", seconds, "s")),
                    HasSubstr(absl::StrCat("no step was completed for ", seconds - 1, "s"))));
}

// The checks of a coordinator with the usual detection are wide apart for a job that has a short
// one.
TEST_F(HangsTest, TwoLooksThatSeeTheSameMomentConvictNobody) {
  v1::SubmitRequest request = RequestOf("short", 1);
  request.mutable_spec()->mutable_elastic()->set_failure_detection_ms(200);
  const JobId quick = Submit(request);
  Say("w2", ReadyReport(quick, 0));
  Say("w2", StepReportOf(quick, 0, 1, 3.5));
  Say("w2", StepReportOf(quick, 0, 2, 3.5));
  for (int round = 0; round < 100; ++round) {
    Advance(absl::Milliseconds(100));
    for (const auto& [worker, link] : links_) Heartbeat(link);
    v1::SessionRequest request;
    v1::RankPosition& position = *request.mutable_position();
    position.set_job_id(quick.value());
    position.set_epoch(1);
    position.set_step(2);
    // Moves once a second.
    position.set_operation(absl::StrCat("forward h.", round / 10));
    Tell(links_.at("w2"), request);
  }
  EXPECT_EQ(Job(quick).state, v1::JOB_STATE_RUNNING);
}

TEST_F(HangsTest, RanksThatWereSeenMovingBeforeTheCoordinatorsPauseDoNotHang) {
  AnswerTwice("3");
  Freeze(absl::Seconds(60));
  EXPECT_GT(AnswerTwice("5"), absl::Seconds(10));
  AnswerTwice("5");
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(HangsTest, WhereRanksAreWhenTheCoordinatorPausesAtHalfOfTheTimeIsNotForgotten) {
  AwaitQuestion();
  Answer("3");
  Freeze(absl::Seconds(60));
  AnswerTwice("3");
  EXPECT_GT(AnswerTwice("5"), absl::Seconds(10));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

// The answers lie in its sockets when it wakes.
TEST_F(HangsTest, WhatTheCoordinatorSleptThroughIsAskedAgain) {
  AnswerTwice("3");
  AwaitQuestion();
  Answer("3");
  AwaitQuestion();
  const std::map<int64_t, int> asked = QuestionsTo("w0");
  Freeze(absl::Seconds(60));
  for (int i = 0; i < 20 && QuestionsTo("w0") == asked; ++i) Advance(absl::Milliseconds(50));
  EXPECT_EQ(QuestionsTo("w0").rbegin()->first, asked.rbegin()->first);
  EXPECT_EQ(QuestionsTo("w0").rbegin()->second, 2);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Answer("4");
  Live(absl::Seconds(2));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

// Its answers were read before.
TEST_F(HangsTest, WhatTheCoordinatorHeardBeforeItSleptIsNotAskedAgain) {
  AnswerTwice("3");
  AwaitQuestion();
  Answer("3");
  Freeze(absl::Seconds(60));
  AwaitQuestion();
  Answer("3");
  Advance(absl::Milliseconds(600));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
}

TEST_F(HangsTest, WhoseStreamBreaksAtTheQuestionIsAskedWhenItIsBack) {
  AnswerTwice("3");
  const int64_t before = TimesAsked("w0");
  while (TimesAsked("w0") == before) {
    Advance(absl::Milliseconds(10));
    for (const auto& [worker, link] : links_) Heartbeat(link);
  }
  Answer("3");
  Advance(absl::Milliseconds(480));
  Disconnect(links_.at("w1"));
  Advance(absl::Milliseconds(30));
  ASSERT_EQ(TimesAsked("w0"), before + 2);
  Connect(HelloWithRank("w1", 1, 1));
  Locate("w0", 0, "exchange", /*waiting=*/true, {1});
  Advance(absl::Milliseconds(500));
  EXPECT_EQ(TimesAsked("w1"), 1);
  // Who has answered is not asked again.
  EXPECT_EQ(QuestionsTo("w0").rbegin()->second, 1);
  Answer("4");
  Live(absl::Seconds(4));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

// It was sent twice, and what it answered first says nothing about later.
TEST_F(HangsTest, AnAnswerToAnEarlierQuestionIsNoneToTheNext) {
  AnswerTwice("3");
  AwaitQuestion();
  const int64_t first = QuestionsTo("w1").rbegin()->first;
  Answer("3");
  AwaitQuestion();
  EXPECT_GT(QuestionsTo("w1").rbegin()->first, first);
  Locate("w0", 0, "exchange", /*waiting=*/true, {1}, QuestionsTo("w0").rbegin()->first);
  Locate("w1", 1, "forward h.0 round 3", /*waiting=*/false, {}, first);
  Advance(absl::Milliseconds(600));
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Locate("w1", 1, "forward h.0 round 4", /*waiting=*/false, {}, QuestionsTo("w1").rbegin()->first);
  Live(absl::Seconds(2));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

// It may be released long since, and the coordinator not have read it yet.
TEST_F(ElasticTest, WhoIsWaitedForHasItsTimeBehindTheCoordinatorsPause) {
  ReportExit("w1", 1, SIGKILL);
  Live(absl::Seconds(8));
  Freeze(absl::Seconds(60));
  Live(absl::Seconds(1));
  EXPECT_TRUE(Worker("w0").alive);
  Release("w0", 0, 1);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
}

TEST_F(ElasticTest, WhatTheCoordinatorSleptThroughIsNoHang) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Seconds(20));
  Freeze(absl::Seconds(60));
  Live(absl::Seconds(9));
  // At half of the time.
  EXPECT_EQ(TimesAsked("w0"), 2);
}

TEST_F(ElasticTest, SlowStepsAreGivenFiveTimesTheirMedian) {
  for (int64_t step = 2; step < 6; ++step) {
    v1::RankReport report = StepReportOf(job_, 0, step, 3.5);
    report.mutable_step()->set_step_ms(20'000);
    Say("w0", report);
    Live(absl::Milliseconds(600));
  }
  Live(absl::Seconds(98));
  EXPECT_EQ(TimesAsked("w0"), 2);
  Live(absl::Seconds(3));
  EXPECT_GT(TimesAsked("w0"), 2);
}

// Its files are written after the last step, which has taken longer than a step may.
TEST_F(ElasticTest, ARankThatHangsAfterTheLastStepIsFound) {
  Say("w0", StepReportOf(job_, 0, 1000, 3.5));
  const absl::Duration writing = StateTime(Job(job_).spec);
  Live(absl::Seconds(119) + writing);
  EXPECT_EQ(TimesAsked("w0"), 2);
  const auto await_question = [&] {
    const auto before = TimesAsked("w0");
    for (int i = 0; i < 40 && TimesAsked("w0") == before; ++i) Live(absl::Milliseconds(100));
    ASSERT_GT(TimesAsked("w0"), before);
  };
  await_question();
  // What writes does not hang.
  for (const char* where : {"writing (file operation 7)", "writing (file operation 8)"}) {
    Locate("w0", 0, "writing (file operation 3)", /*waiting=*/true, {1});
    Locate("w1", 1, where, /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live(absl::Seconds(119) + writing);
  await_question();
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, "writing (file operation 3)", /*waiting=*/true, {1});
    Locate("w1", 1, "writing (file operation 8)", /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("rank 1 on worker w1 hangs"));
  EXPECT_THAT(Job(job_).reason, HasSubstr("writing (file operation 8)"));
}

// The output is there: whoever does not come to its end is not waited for.
TEST_F(ElasticTest, ARankThatHangsWhenAnotherHasFinishedHoldsNoJobUp) {
  Say("w0", StepReportOf(job_, 0, 1000, 3.5));
  Say("w0", FinishedReport(job_, 0));
  Live(absl::Milliseconds(120'600) + StateTime(Job(job_).spec));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w1", 1, "writing (file operation 8)", /*waiting=*/true, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace sherd
