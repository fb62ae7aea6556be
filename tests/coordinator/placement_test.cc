#include "coordinator/core/placement.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

JobRecord Job(const JobRequest& request) {
  JobRecord job;
  job.id = JobId(request.name);
  job.spec = MakeSpec(request);
  return job;
}

GangPlacement PlaceAlone(const State& state, const JobRecord& job) {
  return WorkerPools(state).Place(job);
}

TEST(Placement, TakesAsManyWorkersAsItMayAndSparesTheRest) {
  Scenario scenario;
  scenario.JoinWorkers(6);
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.max_workers = 4})).workers, SizeIs(4));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({})).workers, SizeIs(6));
}

TEST(Placement, AWorldIsAMultipleOfTensor) {
  Scenario scenario;
  scenario.JoinWorkers(7);
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.tensor = 2})).workers, SizeIs(6));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.tensor = 4})).workers, SizeIs(4));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.tensor = 8})).workers, IsEmpty());
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.max_workers = 5, .tensor = 2})).workers,
              SizeIs(4));
  // At least 5 in pairs is 6.
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.min_workers = 5, .tensor = 2})).workers,
              SizeIs(6));
}

TEST(Placement, AWorldStaysInOneSharedMemoryDomain) {
  Scenario scenario;
  for (int number = 0; number < 2; ++number) scenario.Do(Joined(absl::StrCat("a", number), 1, "a"));
  for (int number = 0; number < 3; ++number) scenario.Do(Joined(absl::StrCat("b", number), 1, "b"));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.min_workers = 2})).workers,
              ElementsAre(WorkerId("b0"), WorkerId("b1"), WorkerId("b2")));
  const GangPlacement none = PlaceAlone(scenario.state(), Job({.min_workers = 4}));
  EXPECT_THAT(none.workers, IsEmpty());
  EXPECT_EQ(none.waiting, Waiting::kWorkers);
  EXPECT_THAT(none.reason, HasSubstr("4 idle workers in one shared-memory domain, 5 connected"));
  EXPECT_THAT(none.reserved, IsEmpty());
}

TEST(Placement, AWorldHasOneKindOfDevice) {
  Scenario scenario;
  v1::DurableEvent gpu = Joined("gpu", 1);
  gpu.mutable_worker_joined()->set_device("cuda:0");
  scenario.Do(gpu);
  scenario.Do(Joined("cpu", 1));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({.min_workers = 2})).workers, IsEmpty());
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({})).workers, SizeIs(1));
}

TEST(Placement, RanksFollowTheNumbersInWorkerNames) {
  Scenario scenario;
  for (const int number : {10, 9, 1, 2}) scenario.Do(Joined(absl::StrCat("host/cpu:", number), 1));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({})).workers,
              ElementsAre(WorkerId("host/cpu:1"), WorkerId("host/cpu:2"), WorkerId("host/cpu:9"),
                          WorkerId("host/cpu:10")));
}

TEST(Placement, LeavesTakenAndLostWorkersAlone) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  scenario.Do(Lost("w0", 1, "its lease lapsed"));
  WorkerPools pools(scenario.state());
  EXPECT_THAT(pools.Place(Job({.max_workers = 1})).workers, ElementsAre(WorkerId("w1")));
  EXPECT_THAT(pools.Place(Job({})).workers, ElementsAre(WorkerId("w2")));
}

TEST(Placement, WaitingForBusyWorkersReservesTheIdleOnes) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  scenario.Submit({.max_workers = 1});
  WorkerPools pools(scenario.state());
  const GangPlacement waits = pools.Place(Job({.min_workers = 3}));
  EXPECT_EQ(waits.waiting, Waiting::kIdleWorkers);
  EXPECT_THAT(waits.reason, HasSubstr("2 of 3 idle"));
  EXPECT_THAT(waits.reserved, ElementsAre(WorkerId("w1"), WorkerId("w2")));
  EXPECT_THAT(pools.Place(Job({})).workers, IsEmpty());
}

}  // namespace
}  // namespace sherd
