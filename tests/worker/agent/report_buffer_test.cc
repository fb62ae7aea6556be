#include "worker/agent/report_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "worker/agent/backoff.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

v1::SessionRequest Step(int64_t step) {
  v1::SessionRequest request;
  request.mutable_report()->mutable_step()->set_step(step);
  return request;
}

v1::SessionRequest Ready(int rank) {
  v1::SessionRequest request;
  request.mutable_report()->set_rank(rank);
  request.mutable_report()->mutable_ready();
  return request;
}

// (number, step or -1 for a milestone) of everything that is to be sent.
std::vector<std::pair<uint64_t, int64_t>> SendAll(ReportBuffer& buffer) {
  std::vector<std::pair<uint64_t, int64_t>> sent;
  while (const v1::SessionRequest* next = buffer.NextToSend()) {
    sent.emplace_back(next->sequence(),
                      next->report().has_step() ? next->report().step().step() : -1);
  }
  return sent;
}

TEST(ReportBuffer, NumbersReportsFromOneInOrder) {
  ReportBuffer buffer(8);
  buffer.Add(Step(10));
  buffer.Add(Step(11));
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(1, 10), Pair(2, 11)));
  EXPECT_FALSE(buffer.HasUnsent());
}

TEST(ReportBuffer, SendsWhatIsNotAcknowledgedAgainWithItsNumber) {
  ReportBuffer buffer(8);
  for (int64_t step : {10, 11, 12}) buffer.Add(Step(step));
  SendAll(buffer);
  buffer.Acknowledge(1);
  buffer.Rewind();
  buffer.Add(Step(13));
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(2, 11), Pair(3, 12), Pair(4, 13)));
}

TEST(ReportBuffer, AnAcknowledgementMayComeLateRepeatedOrBeforeTheSecondSending) {
  ReportBuffer buffer(8);
  for (int64_t step : {10, 11, 12}) buffer.Add(Step(step));
  SendAll(buffer);
  buffer.Rewind();
  buffer.Acknowledge(2);
  buffer.Acknowledge(1);
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(3, 12)));
  buffer.Acknowledge(3);
  EXPECT_EQ(buffer.size(), 0u);
}

TEST(ReportBuffer, IgnoresAnAcknowledgementOfWhatWasNeverSent) {
  ReportBuffer buffer(8);
  buffer.Add(Step(10));
  buffer.Acknowledge(99);
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(1, 10)));
}

TEST(ReportBuffer, DropsTheOldestStepsAndNeverAMilestoneWhenFull) {
  ReportBuffer buffer(3);
  EXPECT_TRUE(buffer.Add(Ready(0)));
  EXPECT_TRUE(buffer.Add(Step(1)));
  EXPECT_TRUE(buffer.Add(Step(2)));
  EXPECT_FALSE(buffer.Add(Step(3)));
  EXPECT_FALSE(buffer.Add(Ready(1)));
  EXPECT_FALSE(buffer.Add(Ready(2)));
  EXPECT_TRUE(buffer.Add(Ready(3)));  // nothing is left to drop
  EXPECT_FALSE(buffer.Add(Step(4)));  // drops itself
  // No number is missing, so the coordinator can tell a gap from a drop.
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(1, -1), Pair(2, -1), Pair(3, -1), Pair(4, -1)));
}

TEST(ReportBuffer, NeverDropsWhatWasSent) {
  ReportBuffer buffer(2);
  buffer.Add(Step(1));
  buffer.Add(Step(2));
  SendAll(buffer);
  EXPECT_FALSE(buffer.Add(Step(3)));
  buffer.Rewind();
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(1, 1), Pair(2, 2)));
  buffer.Acknowledge(2);
  EXPECT_TRUE(buffer.Add(Step(4)));
  EXPECT_THAT(SendAll(buffer), ElementsAre(Pair(3, 4)));
  buffer.Acknowledge(3);
  EXPECT_THAT(SendAll(buffer), IsEmpty());
}

TEST(Backoff, DoublesToItsLimitAndStartsAnewAfterASuccess) {
  Backoff backoff(absl::Milliseconds(50), absl::Seconds(1), /*seed=*/3);
  absl::Duration whole = absl::Milliseconds(50);
  for (int i = 0; i < 12; ++i) {
    const absl::Duration delay = backoff.Next();
    EXPECT_LE(delay, whole);
    EXPECT_GE(delay, whole * 0.8);
    whole = std::min(whole * 2, absl::Seconds(1));
  }
  EXPECT_EQ(whole, absl::Seconds(1));
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(50));
}

TEST(Backoff, DiffersBetweenWorkers) {
  Backoff one(absl::Seconds(1), absl::Seconds(1), 1);
  Backoff other(absl::Seconds(1), absl::Seconds(1), 2);
  EXPECT_NE(one.Next(), other.Next());
}

}  // namespace
}  // namespace sherd
