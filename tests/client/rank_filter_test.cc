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
  RankFilter all(std::nullopt, 0, 9);
  RankFilter second(1, 0, 9);
  EXPECT_TRUE(all.Shows(Line(1, 5).log()));
  EXPECT_TRUE(second.Shows(Line(1, 1).log()));
  EXPECT_FALSE(second.Shows(Line(1, 0).log()));
  EXPECT_TRUE(all.See(Epoch(9, 1)).ok());
}

TEST(RankFilter, RefusesARankThatTheJobNeverHad) {
  RankFilter filter(7, 0, 3);
  EXPECT_TRUE(filter.See(Epoch(1, 4)).ok());
  EXPECT_TRUE(filter.See(Line(2, 0)).ok());
  const absl::Status refused = filter.See(Line(3, 0));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--rank 7 is out of range: the job has had 4 ranks at most; the nearest "
                        "valid value is 3"));
}

TEST(RankFilter, TakesARankOfAnEarlierEpochAndWaitsForTheFirst) {
  RankFilter shrunk(7, 4, 3);
  EXPECT_TRUE(shrunk.See(Epoch(1, 8)).ok());
  EXPECT_TRUE(shrunk.See(Epoch(3, 4)).ok());
  EXPECT_TRUE(shrunk.See(Line(4, 0)).ok());
  RankFilter queued(7, 0, 1);
  v1::JobEvent state;
  state.set_sequence(1);
  state.mutable_state();
  EXPECT_TRUE(queued.See(state).ok());
  EXPECT_TRUE(queued.See(Epoch(2, 8)).ok());
}

// An epoch is told of when its first step is, and one that is cut short before it not at all.
TEST(RankFilter, TakesARankOfAnEpochThatIsNotToldOf) {
  RankFilter forming(7, 8, 3);
  EXPECT_TRUE(forming.See(Epoch(1, 4)).ok());
  EXPECT_TRUE(forming.See(Line(3, 0)).ok());
  v1::JobEvent ledger;
  ledger.set_sequence(2);
  ledger.mutable_ledger()->set_rank(7);
  v1::JobEvent warning;
  warning.set_sequence(2);
  warning.mutable_warning()->set_rank(7);
  v1::JobEvent decision;
  decision.set_sequence(2);
  decision.mutable_decision()->set_world(8);
  for (const v1::JobEvent& told : {Line(2, 7), ledger, warning, decision}) {
    RankFilter grown(7, 0, 3);
    EXPECT_TRUE(grown.See(Epoch(1, 4)).ok());
    EXPECT_TRUE(grown.See(told).ok());
    EXPECT_TRUE(grown.See(Line(3, 0)).ok()) << told.ShortDebugString();
  }
  // The coordinator's own.
  RankFilter never(0, 0, 2);
  EXPECT_TRUE(never.See(Line(1, -1)).ok());
  EXPECT_TRUE(never.See(Line(2, -1)).ok());
}

}  // namespace
}  // namespace sherd
