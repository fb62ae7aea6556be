#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <tuple>

#include "tests/protocol/explore.h"

namespace sherd::protocol {
namespace {

constexpr char kLost[] = "a committed step is lost within the promise";
constexpr char kMixed[] = "ranks of one epoch go on from different states";

// The newest whole version, in however few processes it is.
std::optional<Version> ChooseNewest(const v1::JobSpec& spec, int64_t restored,
                                    absl::Span<const Holder> holders) {
  std::map<std::tuple<bool, int64_t, int64_t, int>, std::set<int>> versions;
  for (const Holder& holder : holders) {
    for (const v1::Holding& held : holder.holdings) {
      versions[{held.epoch() >= restored, held.step(), held.epoch(), held.world()}].insert(
          PartOf(spec, held.world(), held.owner()));
    }
  }
  std::optional<Version> newest;
  for (const auto& [key, parts] : versions) {
    const auto& [present, step, epoch, world] = key;
    if (static_cast<int>(parts.size()) == PartsOf(spec, world)) newest = {epoch, world, step};
  }
  return newest;
}

struct Fault {
  std::string name;
  Policy policy;
  Scenario scenario;
  std::string violation;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class PlantedFault : public ::testing::TestWithParam<Fault> {};

// The same scenario without the fault is among those of protocol_test.cc, or a part of one.
TEST_P(PlantedFault, IsFound) {
  const Fault& fault = GetParam();
  EXPECT_EQ(Explore(fault.name, fault.scenario, fault.policy).violation, fault.violation);
}

constexpr Scenario kTwoRanks{.deaths = 1, .ends = 1};

INSTANTIATE_TEST_SUITE_P(
    Eight, PlantedFault,
    ::testing::Values(
        Fault{"SlotByStepParity",
              {.update_slot = [](int, int step) { return step % 2; },
               .restore_slot = [](int, int step) { return step % 2; }},
              kTwoRanks,
              kLost},
        Fault{"ChoiceBeforeAllAnswers",
              {.waits_for_all_answers = false},
              {.processes = 3, .first_world = 3, .max_world = 3, .deaths = 1},
              kLost},
        Fault{"RelabelledHeaders", {.copies_to_restore = false}, kTwoRanks, kLost},
        Fault{"VersionsMatchedWithoutEpoch", {.matches_epochs = false}, kTwoRanks, kMixed},
        Fault{"RestoreOverTheChosenSlot",
              {.restore_slot = [](int chosen, int) { return chosen; }},
              kTwoRanks,
              kLost},
        Fault{"NoFinalExchange", {.final_exchange = false}, {.deaths = 1}, kLost},
        Fault{"HoldersDeathIgnored",
              {.holders_end_epochs = false},
              {.processes = 3, .first_world = 1, .max_world = 1, .deaths = 2},
              kLost},
        // With shared memory all versions of a segment are in the same processes.
        Fault{"NewestInsteadOfSafest",
              {.choose = ChooseNewest},
              {.remote = true, .deaths = 1, .ends = 1},
              kLost}),
    [](const auto& info) { return info.param.name; });

// What the protocol had been without before it was modelled. Without a fence it is not enough that
// nothing is restored into memory that others hold: an epoch that ended without a loss and one
// death lose what a rank still reported.
INSTANTIATE_TEST_SUITE_P(
    Found, PlantedFault,
    ::testing::Values(Fault{"MemoryNotFenced",
                            {.fences_memory = false},
                            {.processes = 3, .steps = 3, .freezes = 1, .heard_only = true},
                            kLost},
                      Fault{"MemoryOfEachEpochNotFenced",
                            {.fences_memory = false},
                            {.anew = true, .deaths = 1, .ends = 1, .heard_only = true},
                            kLost},
                      Fault{"OnlyTheLogProvesRestored",
                            {.steps_prove_restored = false},
                            {.processes = 3, .max_world = 3, .anew = true, .deaths = 1, .ends = 1},
                            kLost}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sherd::protocol
