// A coordinator that pauses, once or all the time.

#include <csignal>
#include <functional>

#include "absl/strings/str_cat.h"
#include "coordinator/runtime/pause_watch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/elastic_fixture.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

TEST(PauseWatch, ExcusesAPauseAndOfShortOnesAndThoseThatFollowAllButAnInterval) {
  const absl::Duration interval = absl::Milliseconds(300), calm = absl::Seconds(3);
  PauseWatch watch(interval, calm);
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto after = [&](absl::Duration time) { return watch.Excused(now += time); };
  EXPECT_EQ(after(absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(after(1.5 * interval), absl::ZeroDuration());
  // An interval would have passed anyway.
  EXPECT_EQ(after(3 * interval), 2 * interval);
  const absl::Duration pause = 3 * interval + absl::Nanoseconds(1);
  EXPECT_EQ(after(pause), pause);
  EXPECT_EQ(after(pause), pause - interval);
  // Prompt for a moment only.
  EXPECT_EQ(after(calm / 10), absl::ZeroDuration());
  EXPECT_EQ(after(absl::Hours(1)), absl::Hours(1) - interval);
  for (int turn = 0; turn < 10; ++turn) EXPECT_EQ(after(calm / 10), absl::ZeroDuration());
  EXPECT_EQ(after(absl::Hours(1)), absl::Hours(1));
}

// Every turn comes `gap` after the one before.
class LateCoordinator : public ElasticTest {
 protected:
  // Turns until `done`, at most `most`; in each `hear` is what the workers say.
  int Turns(absl::Duration gap, int most, const std::function<void()>& hear,
            const std::function<bool()>& done) {
    int turns = 0;
    while (turns < most && !done()) {
      ++turns;
      Wake(gap);
      hear();
      EndTurn();
    }
    return turns;
  }

  void BeatAllBut(const std::string& silent) {
    for (const auto& [worker, link] : links_) {
      if (worker != silent) Heartbeat(link);
    }
  }

  // Turns until the job recovers: rank 1 stands in its forward, rank 0 waits for it.
  int TurnsOfAHang(absl::Duration gap) {
    Say("w0", StepReportOf(job_, 0, 2, 3.5));
    const auto stand = [&] {
      BeatAllBut("");
      if (Job(job_).state != v1::JOB_STATE_RUNNING) return;
      Locate("w0", 0, "exchange", /*waiting=*/true, {1});
      Locate("w1", 1, "forward h.0", /*waiting=*/false, {});
    };
    return Turns(gap, 300, stand, [&] { return Job(job_).state == v1::JOB_STATE_RECOVERING; });
  }
};

TEST_F(LateCoordinator, FindsWhoIsSilent) {  // F21
  const int turns = Turns(
      absl::Seconds(1), 100, [&] { BeatAllBut("w1"); }, [&] { return !Worker("w1").alive; });
  EXPECT_GE(turns, 5);
  EXPECT_LE(turns, 15);
  EXPECT_TRUE(Worker("w0").alive);
}

TEST_F(LateCoordinator, FindsWhoIsNotReleased) {  // F33
  ReportExit("w1", 1, SIGKILL);
  ASSERT_TRUE(Worker("w0").alive);
  const int turns = Turns(
      absl::Seconds(1), 100, [&] { BeatAllBut(""); }, [&] { return !Worker("w0").alive; });
  EXPECT_LE(turns, 40);
}

TEST_F(LateCoordinator, FindsAHang) {  // F34
  const int turns = TurnsOfAHang(absl::Seconds(1));
  EXPECT_GE(turns, 30);
  EXPECT_LE(turns, 150);
  EXPECT_THAT(Job(job_).reason, HasSubstr("rank 1 on worker w1 hangs"));
}

// No turn is so late that it is excused; each question's time is over before its answers are
// read.
class SlowDetection : public LateCoordinator {
 protected:
  void SetUp() override {
    // Of the coordinator; the job's own is shorter.
    options_.fleet.failure_detection = absl::Seconds(10);
    Restart();
    LateCoordinator::SetUp();
  }
};

TEST_F(SlowDetection, LooksThatAreLateComeToAVerdict) {
  const int turns = TurnsOfAHang(absl::Seconds(1.4));
  EXPECT_GE(turns, 15);
  EXPECT_LE(turns, 30);
}

TEST_F(ElasticTest, WhatTheCoordinatorHearsWhenItWakesIsTimedFromThen) {
  Wake(absl::Seconds(60));
  ReportExit("w1", 1, SIGKILL);
  Live(absl::Seconds(9));
  EXPECT_TRUE(Worker("w0").alive);
  Live(absl::Seconds(2));
  EXPECT_FALSE(Worker("w0").alive);
}

// What the workers say meanwhile is read in the next turn.
TEST_F(ElasticTest, APauseInTheMiddleOfATurnCostsNobody) {
  ReportExit("w1", 1, SIGKILL);
  Live(absl::Seconds(9));
  Wake(absl::Milliseconds(300));
  clock_.Advance(absl::Seconds(60));
  EndTurn();
  Wake(absl::Milliseconds(1));
  EndTurn();
  EXPECT_TRUE(Worker("w0").alive);
  EXPECT_TRUE(Worker("w2").alive);
  Release("w0", 0, 1);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
}

}  // namespace
}  // namespace sherd
