#include "coordinator/core/placement.h"

#include <string>
#include <vector>

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

void JoinHost(Scenario& scenario, const std::string& host, int workers) {
  for (int number = 0; number < workers; ++number) {
    scenario.Do(Joined(absl::StrCat(host, number), 1, host));
  }
}

std::vector<std::string> Names(const GangPlacement& placement) {
  std::vector<std::string> names;
  for (const WorkerId& worker : placement.workers) names.push_back(worker.value());
  return names;
}

TEST(Placement, OneSharedMemoryDomainGoesBeforeSeveral) {
  Scenario scenario;
  JoinHost(scenario, "a", 2);
  JoinHost(scenario, "b", 3);
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), Job({.max_workers = 2}))),
              ElementsAre("a0", "a1"));
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), Job({.max_workers = 3}))),
              ElementsAre("b0", "b1", "b2"));
}

TEST(Placement, AWorldMaySpanDomainsAndIsInFewOfThem) {
  Scenario scenario;
  JoinHost(scenario, "a", 1);
  JoinHost(scenario, "b", 3);
  JoinHost(scenario, "c", 2);
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), Job({.min_workers = 4, .max_workers = 5}))),
              ElementsAre("b0", "b1", "b2", "c0", "c1"));
  EXPECT_THAT(PlaceAlone(scenario.state(), Job({})).workers, SizeIs(6));
  const GangPlacement none = PlaceAlone(scenario.state(), Job({.min_workers = 7}));
  EXPECT_EQ(none.waiting, Waiting::kWorkers);
  EXPECT_THAT(none.reason, HasSubstr("7 idle workers, 6 connected"));
}

TEST(Placement, ATensorParallelGroupStaysInOneDomain) {
  Scenario scenario;
  JoinHost(scenario, "a", 3);
  JoinHost(scenario, "b", 3);
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), Job({.tensor = 2}))),
              ElementsAre("a0", "a1", "b0", "b1"));
  const GangPlacement none = PlaceAlone(scenario.state(), Job({.tensor = 6}));
  EXPECT_THAT(none.workers, IsEmpty());
  EXPECT_THAT(none.reason, HasSubstr("every tensor group of 6 in one shared-memory domain"));
}

TEST(Placement, WholeShardGroupsAreInOneDomainWhereThatCostsNoWorker) {
  Scenario scenario;
  JoinHost(scenario, "a", 3);
  JoinHost(scenario, "b", 2);
  JobRecord job = Job({.max_workers = 4});
  job.spec.mutable_parallel()->set_shard_group(2);
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), job)), ElementsAre("a0", "a1", "b0", "b1"));
  JoinHost(scenario, "c", 1);
  job.spec.mutable_elastic()->set_max_workers(6);
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), job)),
              ElementsAre("a0", "a1", "a2", "b0", "b1", "c0"));
}

TEST(Placement, AWorkerThatCannotBeReachedStaysInItsDomain) {
  Scenario scenario;
  JoinHost(scenario, "a", 2);
  v1::DurableEvent hidden = Joined("b0", 1, "b");
  hidden.mutable_worker_joined()->clear_network_address();
  scenario.Do(hidden);
  EXPECT_THAT(Names(PlaceAlone(scenario.state(), Job({}))), ElementsAre("a0", "a1"));
  const GangPlacement none = PlaceAlone(scenario.state(), Job({.min_workers = 3}));
  EXPECT_THAT(none.workers, IsEmpty());
  EXPECT_EQ(none.waiting, Waiting::kWorkers);
}

TEST(Placement, WaitingForBusyWorkersReservesTheIdleOnesOfAllDomains) {
  Scenario scenario;
  JoinHost(scenario, "a", 2);
  JoinHost(scenario, "b", 2);
  scenario.Submit({.max_workers = 1});
  WorkerPools pools(scenario.state());
  const GangPlacement waits = pools.Place(Job({.min_workers = 4}));
  EXPECT_EQ(waits.waiting, Waiting::kIdleWorkers);
  EXPECT_THAT(waits.reason, HasSubstr("3 of 4 idle"));
  EXPECT_THAT(waits.reserved, SizeIs(3));
  EXPECT_FALSE(pools.AnyIdle());
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
