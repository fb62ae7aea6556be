#include "client/rank_filter.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

v1::JobEvent Epoch(int64_t sequence, int world) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  event.mutable_epoch()->set_world(world);
  return event;
}

v1::JobEvent Line(int64_t sequence, int rank) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  event.mutable_log()->set_rank(rank);
  return event;
}

TEST(RankFilter, ShowsTheLinesOfItsRank) {
  RankFilter all(std::nullopt, 9);
  RankFilter second(1, 9);
  EXPECT_TRUE(all.Shows(Line(1, 5).log()));
  EXPECT_TRUE(second.Shows(Line(1, 1).log()));
  EXPECT_FALSE(second.Shows(Line(1, 0).log()));
  EXPECT_TRUE(all.See(Epoch(9, 1)).ok());
}

TEST(RankFilter, RefusesARankThatTheJobNeverHad) {
  RankFilter filter(7, 3);
  EXPECT_TRUE(filter.See(Epoch(1, 4)).ok());
  EXPECT_TRUE(filter.See(Line(2, 0)).ok());
  const absl::Status refused = filter.See(Line(3, 0));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--rank 7 is out of range: the job has had 4 ranks at most; the nearest "
                        "valid value is 3"));
}

TEST(RankFilter, TakesARankOfAnEarlierEpochAndWaitsForTheFirst) {
  RankFilter shrunk(7, 3);
  EXPECT_TRUE(shrunk.See(Epoch(1, 8)).ok());
  EXPECT_TRUE(shrunk.See(Epoch(3, 4)).ok());
  EXPECT_TRUE(shrunk.See(Line(4, 0)).ok());
  RankFilter queued(7, 1);
  v1::JobEvent state;
  state.set_sequence(1);
  state.mutable_state();
  EXPECT_TRUE(queued.See(state).ok());
  EXPECT_TRUE(queued.See(Epoch(2, 8)).ok());
}

}  // namespace
}  // namespace sherd
