// Who sits where when a world forms again.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kAll = int64_t{1} << 40;

// Workers by host: "a0", "a1", …, and a job whose last epoch was on `ranks`; "" was lost.
class SeatingTest : public testing::Test {
 protected:
  void Join(const std::string& host, int workers) {
    for (int number = 0; number < workers; ++number) {
      scenario_.Do(Joined(absl::StrCat(host, number), 1, host));
    }
  }

  std::vector<std::string> PlaceAgain(const JobRequest& request,
                                      const std::vector<std::string>& ranks, int64_t most) {
    JobRecord job;
    job.id = JobId("tiny-1");
    job.spec = MakeSpec(request);
    job.excluded = excluded_;
    for (const std::string& worker : ranks) {
      const bool lost = worker.empty();
      job.ranks.push_back({WorkerId(lost ? "gone" : worker),
                           Incarnation(1),
                           lost ? RankPhase::kLost : RankPhase::kReleased,
                           "",
                           true,
                           {}});
    }
    const GangPlacement placement =
        WorkerPools(scenario_.state()).PlaceAgain(job, {.most = most, .below_minimum = below_});
    std::vector<std::string> names;
    for (const WorkerId& worker : placement.workers) names.push_back(worker.value());
    return names;
  }

  Scenario scenario_;
  std::set<WorkerId> excluded_;
  bool below_ = false;
};

TEST_F(SeatingTest, SurvivorsKeepTheirRanksInAWorldOfTheSameSize) {
  Join("a", 4);
  EXPECT_THAT(PlaceAgain({}, {"a2", "", "a0"}, 3), ElementsAre("a2", "a1", "a0"));
}

TEST_F(SeatingTest, SurvivorsStayInTheOrderOfTheirRanksInASmallerOne) {
  Join("a", 2);
  EXPECT_THAT(PlaceAgain({}, {"a1", "", "a0"}, 3), ElementsAre("a1", "a0"));
}

TEST_F(SeatingTest, OthersComeAfterThemInALargerOne) {
  Join("a", 4);
  EXPECT_THAT(PlaceAgain({}, {"a3", "a1"}, kAll), ElementsAre("a3", "a1", "a0", "a2"));
}

TEST_F(SeatingTest, AnotherProcessOfAWorkerIsNoSurvivor) {
  Join("a", 2);
  scenario_.Do(Joined("a0", 2, "a"));
  EXPECT_THAT(PlaceAgain({}, {"a1", "a0"}, 1), ElementsAre("a1"));
}

TEST_F(SeatingTest, ATensorGroupIsFilledUpFromItsOwnDomain) {
  Join("a", 3);
  Join("b", 2);
  EXPECT_THAT(PlaceAgain({.tensor = 2}, {"b0", "b1", "a1", ""}, 4),
              ElementsAre("b0", "b1", "a1", "a0"));
}

TEST_F(SeatingTest, ATensorGroupThatCannotBeFilledMovesAsAWhole) {
  Join("a", 1);
  Join("b", 2);
  Join("c", 2);
  EXPECT_THAT(PlaceAgain({.tensor = 2}, {"a0", "", "b0", "b1"}, 4),
              ElementsAre("c0", "c1", "b0", "b1"));
}

TEST_F(SeatingTest, TheGroupsThatLostFewestMembersStay) {
  Join("a", 4);
  // Two groups are left of three: the whole one, and one that is made up of two halves.
  EXPECT_THAT(PlaceAgain({.tensor = 2}, {"a0", "", "", "a1", "a2", "a3"}, 6),
              ElementsAre("a0", "a1", "a2", "a3"));
}

TEST_F(SeatingTest, WhereMostSurvivorsAreGoesBeforeOtherDomains) {
  Join("a", 2);
  Join("b", 2);
  EXPECT_THAT(PlaceAgain({.max_workers = 2}, {"b1", ""}, 2), ElementsAre("b1", "b0"));
}

TEST_F(SeatingTest, WhoIsExcludedTakesPartOnlyWhereThereIsNoWorldWithoutIt) {
  Join("a", 3);
  excluded_ = {WorkerId("a1")};
  EXPECT_THAT(PlaceAgain({}, {"a0", "a1", "a2"}, 3), ElementsAre("a0", "a2"));
  EXPECT_THAT(PlaceAgain({.min_workers = 3}, {"a0", "a1", "a2"}, 3), ElementsAre("a0", "a1", "a2"));
}

// What only saves needs whole groups, and no more.
TEST_F(SeatingTest, AWorldThatSavesMayBeBelowTheMinimum) {
  Join("a", 3);
  below_ = true;
  EXPECT_THAT(PlaceAgain({.min_workers = 4, .tensor = 2}, {"a0", "a1", "a2", ""}, 4),
              ElementsAre("a0", "a1"));
  EXPECT_THAT(PlaceAgain({.min_workers = 4, .tensor = 4}, {"a0", "a1", "a2", ""}, 4), IsEmpty());
}

TEST_F(SeatingTest, FewerThanTheLeastWorldAreNone) {
  Join("a", 2);
  EXPECT_THAT(PlaceAgain({.min_workers = 3}, {"a0", "a1", ""}, 3), IsEmpty());
}

}  // namespace
}  // namespace sherd
