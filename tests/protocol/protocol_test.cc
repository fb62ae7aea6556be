#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/protocol/explore.h"

namespace sherd::protocol {
namespace {

struct Case {
  std::string name;
  Scenario scenario;
};

void PrintTo(const Case& tried, std::ostream* out) { *out << tried.name; }

class Protocol : public ::testing::TestWithParam<Case> {};

TEST_P(Protocol, LosesNothingMixesNothingAndComesToAnEnd) {
  EXPECT_EQ(Explore(GetParam().name, GetParam().scenario).violation, "");
}

INSTANTIATE_TEST_SUITE_P(
    SharedMemory, Protocol,
    ::testing::Values(
        Case{"TwoRanks", {.deaths = 1, .freezes = 1, .ends = 1, .crashes = 1}},
        Case{"TwoRanksAndASpareTwoDeaths", {.processes = 3, .deaths = 2, .ends = 1, .crashes = 1}},
        Case{"TwoRanksAndASpareAThaw", {.processes = 3, .freezes = 1, .ends = 1, .crashes = 1}},
        Case{"TwoRanksAndASpareAThawAndADeath", {.processes = 3, .deaths = 1, .freezes = 1}},
        Case{"TwoRanksAndASpareThreeSteps",
             {.processes = 3, .steps = 3, .deaths = 1, .ends = 1, .crashes = 1}},
        Case{"TwoRanksThatGrowToThree",
             {.processes = 3, .max_world = 3, .deaths = 1, .ends = 1, .crashes = 1}},
        Case{"OneRankWhoseCopiesASpareHolds",
             {.processes = 3,
              .first_world = 1,
              .max_world = 1,
              .deaths = 2,
              .ends = 1,
              .crashes = 1}},
        Case{"ThreeRanks",
             {.processes = 3,
              .first_world = 3,
              .max_world = 3,
              .deaths = 1,
              .ends = 1,
              .crashes = 1}},
        Case{"ThreeRanksAThaw",
             {.processes = 3, .first_world = 3, .max_world = 3, .freezes = 1, .crashes = 1}},
        Case{"ThreeRanksAndASpare",
             {.processes = 4, .first_world = 3, .max_world = 3, .deaths = 1, .crashes = 1}},
        Case{"ThreeRanksAndASpareAThaw",
             {.processes = 4, .first_world = 3, .max_world = 3, .freezes = 1}},
        Case{"FourRanksTwoAtOnceThatHoldNothingOfEachOther",
             {.processes = 4,
              .first_world = 4,
              .max_world = 4,
              .deaths = 2,
              .mortal = 0b0101,
              .promised = 2}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    MemoryOfEachEpoch, Protocol,
    ::testing::Values(
        Case{"TwoRanks", {.anew = true, .deaths = 1, .freezes = 1, .ends = 1}},
        Case{"TwoRanksAndASpareTwoDeaths",
             {.processes = 3, .anew = true, .deaths = 2, .ends = 1, .crashes = 1}},
        Case{"TwoRanksAndASpareAThaw", {.processes = 3, .anew = true, .freezes = 1, .ends = 1}},
        Case{"TwoRanksAndASpareThreeSteps",
             {.processes = 3, .steps = 3, .anew = true, .deaths = 1, .ends = 1}},
        Case{"ThreeRanks",
             {.processes = 3,
              .first_world = 3,
              .max_world = 3,
              .anew = true,
              .deaths = 1,
              .ends = 1}},
        Case{"ThreeRanksAndASpareAThaw",
             {.processes = 4, .first_world = 3, .max_world = 3, .anew = true, .freezes = 1}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Copies, Protocol,
    ::testing::Values(
        Case{"TwoRanks", {.remote = true, .deaths = 1, .freezes = 1, .ends = 1}},
        Case{"TwoRanksAndASpare", {.processes = 3, .remote = true, .deaths = 1, .ends = 1}},
        Case{"TwoRanksAndASpareAThaw", {.processes = 3, .remote = true, .freezes = 1}},
        Case{"ThreeRanks",
             {.processes = 3, .first_world = 3, .max_world = 3, .remote = true, .deaths = 1}},
        Case{"ThreeRanksAThaw",
             {.processes = 3, .first_world = 3, .max_world = 3, .remote = true, .freezes = 1}}),
    [](const auto& info) { return info.param.name; });

// That all is well must not be because nothing can happen: what nobody promised is not kept.
TEST(Protocol, LosesStepsWhenARankAndItsHolderEndAtOnce) {
  const Scenario scenario{.processes = 3, .deaths = 2, .promised = 2};
  EXPECT_EQ(Explore("A rank and its holder", scenario).violation,
            "a committed step is lost within the promise");
}

}  // namespace
}  // namespace sherd::protocol
