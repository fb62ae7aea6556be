// Copies and restores that take longer than a step may.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/runtime/copy_progress.h"
#include "coordinator/runtime/state_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/elastic_fixture.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;
const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

Positions Copied(const std::vector<int64_t>& bytes) {
  Positions positions;
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    positions[static_cast<int>(rank)].set_copied_bytes(bytes[rank]);
  }
  return positions;
}

TEST(CopyProgress, IsAnythingTheFirstTimeAndOneMebibyteASecondLater) {
  CopyProgress progress;
  EXPECT_TRUE(progress.Judge(Copied({7, 7}), Copied({7, 8}), kStart));
  // Since the last time, and not between the looks: a network may pause.
  const absl::Time second = kStart + absl::Seconds(30);
  EXPECT_TRUE(progress.Judge(Copied({7, 9}), Copied({7, 8 + 30 * kMiB}), second));
  const absl::Time third = second + absl::Seconds(30);
  EXPECT_FALSE(progress.Judge(Copied({7, 8 + 31 * kMiB}), Copied({7, 7 + 60 * kMiB}), third));
  // What was copied before counts no more.
  EXPECT_FALSE(progress.Judge(Copied({7, 7 + 60 * kMiB}), Copied({7, 7 + 60 * kMiB}),
                              third + absl::Milliseconds(1)));
}

TEST(CopyProgress, IsOneRanksAndNotTheSumOfMany) {
  CopyProgress progress;
  EXPECT_TRUE(progress.Judge(Copied({0, 0}), Copied({1, 1}), kStart));
  EXPECT_FALSE(
      progress.Judge(Copied({1, 1}), Copied({6 * kMiB, 6 * kMiB}), kStart + absl::Seconds(10)));
}

TEST(CopyProgress, IsNotWhatARankSaysThatWasNotHeardBefore) {
  CopyProgress progress;
  EXPECT_FALSE(progress.Judge(Copied({5}), Copied({5, kMiB}), kStart));
}

class CopyingTest : public ElasticTest {
 protected:
  void SetUp() override {
    ElasticTest::SetUp();
    Say("w0", StepReportOf(job_, 0, 2, 4.0));
  }

  // Half of the time that a step has is over, and nobody answers.
  void LetHalfOfTheTimePass() {
    const int64_t before = TimesAsked("w0");
    for (int i = 0; i < 1200 && TimesAsked("w0") < before + 2; ++i) Live(absl::Milliseconds(300));
    ASSERT_EQ(TimesAsked("w0"), before + 2);
  }

  void TellCopied(const std::string& worker, int rank, int64_t bytes) {
    v1::SessionRequest request;
    v1::RankPosition& position = *request.mutable_position();
    position.set_job_id(job_.value());
    position.set_epoch(Job(job_).epoch.value());
    position.set_rank(rank);
    position.set_step(2);
    position.set_operation("exchange");
    position.set_waiting(true);
    position.set_copied_bytes(bytes);
    Tell(links_.at(worker), request);
  }

  // Waits for the next look at the ranks, at which the one on `worker` has copied so much; all wait
  // for it. How long that took.
  absl::Duration Look(const std::string& worker, int rank, int64_t first, int64_t second) {
    const absl::Time start = clock_.Now();
    for (const int64_t bytes : {first, second}) {
      const int64_t before = TimesAsked("w0");
      for (int i = 0; i < 1200 && TimesAsked("w0") == before; ++i) Live(absl::Milliseconds(300));
      EXPECT_EQ(TimesAsked("w0"), before + 1);
      TellCopied("w0", 0, 0);
      TellCopied(worker, rank, bytes);
    }
    const absl::Duration asked_after = clock_.Now() - start;
    Live(absl::Milliseconds(600));
    return asked_after;
  }
};

TEST_F(CopyingTest, ARankThatCopiesDoesNotHang) {
  int64_t copied = 100;
  for (int period = 0; period < 5; ++period) {
    LetHalfOfTheTimePass();
    Look("w1", 1, copied, copied + 1);
    ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING) << "period " << period;
    copied += 40 * kMiB;
  }
  // The copy is through, and the step is not.
  LetHalfOfTheTimePass();
  Look("w1", 1, copied - 40 * kMiB + 1, copied - 40 * kMiB + 1);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("no step was completed for"));
}

TEST_F(CopyingTest, ATrickleHidesAHangForOnePatienceAlone) {
  LetHalfOfTheTimePass();
  Look("w1", 1, 100, 101);
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  const absl::Time half = clock_.Now();
  LetHalfOfTheTimePass();
  const absl::Duration passed = clock_.Now() - half;
  const absl::Duration later = passed + Look("w1", 1, 20 * kMiB, 20 * kMiB + 1);
  EXPECT_GT(later, absl::Seconds(29));
  EXPECT_LT(later, absl::Seconds(33));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
}

// Its first answer comes behind the time in which ranks usually answer.
TEST_F(CopyingTest, ARankThatCopiesAndAnswersLateDoesNotHang) {
  LetHalfOfTheTimePass();
  int64_t copied = 100;
  for (int question = 0; question < 2; ++question) {
    const int64_t before = TimesAsked("w0");
    for (int i = 0; i < 1200 && TimesAsked("w0") == before; ++i) Live(absl::Milliseconds(300));
    TellCopied("w0", 0, 0);
    Advance(absl::Milliseconds(700));
    TellCopied("w1", 1, ++copied);
  }
  Live(absl::Seconds(4));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(CopyingTest, AStepBeginsAnew) {
  LetHalfOfTheTimePass();
  Look("w1", 1, 100, 101);
  Say("w0", StepReportOf(job_, 0, 3, 3.9));
  LetHalfOfTheTimePass();
  // Slower than one that had been looked at in this step.
  Look("w1", 1, 200, 201);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(CopyingTest, AWorldThatReadsItsStateOnHasTimeToForm) {
  ReportExit("w1", 1, SIGKILL);
  Release("w0", 0, 2);
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
  ASSERT_EQ(Job(job_).epoch, Epoch(2));
  const absl::Duration time = ReadyTime(Job(job_), absl::Seconds(120));
  EXPECT_GT(Look("w2", 1, 5000, 6000), time - absl::Seconds(1));
  EXPECT_GT(Look("w2", 1, 200 * kMiB, 200 * kMiB), absl::Seconds(119));
  EXPECT_EQ(Job(job_).epoch, Epoch(2));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
  // It stops, and so does the world.
  Look("w2", 1, 200 * kMiB, 200 * kMiB);
  EXPECT_NE(Job(job_).state, v1::JOB_STATE_FORMING);
}

TEST_F(CopyingTest, RanksThatCopyHaveTimeToPause) {
  Leave("w1");
  Look("w1", 1, 5000, 6000);
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("abort")));
  Look("w1", 1, 6000, 6000);
  EXPECT_THAT(links_.at("w0")->Kinds(), Contains("abort"));
  EXPECT_THAT(Job(job_).reason, HasSubstr("the ranks did not stop within 30s"));
}

}  // namespace
}  // namespace sherd
