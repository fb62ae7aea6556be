// Jobs over several hosts, whose shards are stored and read over the network (docs/adr/0009).

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/assignment.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Workers "a0", "a1", … of host "a"; with an address for other hosts, or without.
void JoinHost(Scenario& scenario, const std::string& host, int count, bool reachable = true) {
  for (int number = 0; number < count; ++number) {
    const std::string name = absl::StrCat(host, number);
    v1::DurableEvent event = Joined(name, 1, host);
    event.mutable_worker_joined()->set_network_address(reachable ? absl::StrCat("tcp:", name, ":1")
                                                                 : "");
    scenario.Do(std::move(event));
  }
}

// A small model, so that parts of different worlds overlap as in the product.
JobId RunJob(Scenario& scenario, const JobRequest& request) {
  const JobId id("tiny-1");
  v1::DurableEvent submitted = Submitted(id, request);
  v1::JobSpec& spec = *submitted.mutable_job_submitted()->mutable_spec();
  spec.mutable_model()->set_preset("gpt2-124m");
  spec = NormalizeJobSpec(spec);
  spec.mutable_checkpoint()->clear_dir();
  scenario.Do(std::move(submitted));
  scenario.ReportAll(id, kReady);
  scenario.Do(Progressed(scenario.job(id), 7));
  return id;
}

v1::Assignment AssignmentOf(const Scenario& scenario, const JobId& id, int rank) {
  return AssignmentBuilder().Build(scenario.state(), scenario.job(id), rank, {});
}

TEST(Hosts, ARankIsToldWhereToStoreAndForWhom) {
  Scenario scenario;
  JoinHost(scenario, "a", 2);
  JoinHost(scenario, "b", 2);
  const JobId id = RunJob(scenario, {.min_workers = 4, .max_workers = 4});
  const v1::Assignment assignment = AssignmentOf(scenario, id, 3);
  EXPECT_THAT(assignment.holders(), ElementsAre("tcp:a1:1"));
  EXPECT_THAT(assignment.stored_for(), ElementsAre(1));
}

TEST(Hosts, TheLossOfAHostCostsNoStepAndTheWorldIsCutAnew) {
  Scenario scenario;
  JoinHost(scenario, "a", 2);
  JoinHost(scenario, "b", 2);
  const JobId id = RunJob(scenario, {.min_workers = 1, .max_workers = 4});
  for (const char* worker : {"b0", "b1"}) scenario.Do(Lost(worker, 1, "its session broke", 7));
  scenario.ReleaseAll(id, 7);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1"));
  EXPECT_EQ(scenario.job(id).restore.step, 7);
  const v1::Assignment assignment = AssignmentOf(scenario, id, 0);
  EXPECT_EQ(assignment.restore().secret(), "secret of tiny-1:1");
  EXPECT_EQ(assignment.secret(), "secret of tiny-1:2");
}

TEST(Hosts, PartsAreReadOverTheNetworkWhereMemoryIsNotShared) {
  Scenario scenario;
  for (const char* host : {"a", "b", "c"}) JoinHost(scenario, host, 1);
  const JobId id = RunJob(scenario, {.min_workers = 1, .max_workers = 3});
  scenario.Do(Lost("c0", 1, "its session broke", 7));
  scenario.ReleaseAll(id, 7);
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "b0"));
  // a0 has parts 0 and 2, b0 parts 1 and 0.
  std::vector<std::string> sources;
  for (const int rank : {0, 1}) {
    const v1::Assignment assignment = AssignmentOf(scenario, id, rank);
    for (const v1::RestoreSource& source : assignment.restore().sources()) {
      sources.push_back(absl::StrCat(rank, " reads ", source.owner(), " from ", source.address()));
    }
  }
  EXPECT_THAT(sources,
              UnorderedElementsAre("0 reads 0 from unix-abstract:a0", "0 reads 1 from tcp:b0:1",
                                   "1 reads 1 from unix-abstract:b0", "1 reads 2 from tcp:a0:1"));
}

TEST(Hosts, AJobGrowsOverThem) {
  Scenario scenario;
  JoinHost(scenario, "a", 2);
  const JobId id = RunJob(scenario, {.max_workers = 4});
  JoinHost(scenario, "b", 1);
  EXPECT_EQ(scenario.job(id).reason, "the world grows from 2 to 3 workers");
  scenario.ReleaseAll(id, 9);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1", "b0"));
}

TEST(Hosts, AJobDoesNotGrowWhereItsStateCannotBeRead) {
  Scenario scenario;
  JoinHost(scenario, "a", 1, /*reachable=*/false);
  const JobId id = RunJob(scenario, {.max_workers = 4});
  JoinHost(scenario, "b", 3);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  v1::DurableEvent near = Joined("a1", 1, "a");
  near.mutable_worker_joined()->clear_network_address();
  scenario.Do(std::move(near));
  EXPECT_EQ(scenario.job(id).reason, "the world grows from 1 to 2 workers");
}

TEST(Hosts, WorkersOfOtherKindsAreNotGrownOn) {
  Scenario scenario;
  JoinHost(scenario, "a", 1);
  const JobId id = RunJob(scenario, {.max_workers = 4});
  for (const char* worker : {"g0", "g1"}) {
    v1::DurableEvent gpu = Joined(worker, 1, "b");
    gpu.mutable_worker_joined()->set_device("cuda:0");
    scenario.Do(std::move(gpu));
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

// Not three attempts that end in the same way: it waits, and says what for.
TEST(Hosts, AWorldThatCannotReadTheStateIsNotTried) {
  Scenario scenario;
  JoinHost(scenario, "a", 2, /*reachable=*/false);
  const JobId id = RunJob(scenario, {.min_workers = 2, .max_workers = 2});
  JoinHost(scenario, "b", 2, /*reachable=*/false);
  scenario.Do(Lost("a1", 1, "killed by signal 9 (SIGKILL)", 7));
  scenario.ReleaseAll(id, 7);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason,
              AllOf(HasSubstr("waits for workers that can read step 7"),
                    HasSubstr("a0 holds a part of it alone"), HasSubstr("--data-host")));
  v1::DurableEvent back = Joined("a1", 2, "a");
  back.mutable_worker_joined()->clear_network_address();
  scenario.Do(std::move(back));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1"));
  EXPECT_EQ(scenario.job(id).restore.step, 7);
}

TEST(Hosts, ASmallerWorldThatReadsTheStateGoesBeforeALargerOneThatCannot) {
  Scenario scenario;
  JoinHost(scenario, "a", 3, /*reachable=*/false);
  const JobId id = RunJob(scenario, {.min_workers = 1, .max_workers = 3});
  JoinHost(scenario, "b", 3, /*reachable=*/false);
  scenario.Do(Lost("a1", 1, "killed by signal 9 (SIGKILL)", 7));
  scenario.ReleaseAll(id, 7);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a2"));
}

// The link between rank 0 and rank 1 is broken, both workers live.
TEST(Hosts, ABrokenLinkExcludesOneAndNobodyReadsFromIt) {
  Scenario scenario;
  for (const char* host : {"a", "b", "c"}) JoinHost(scenario, host, 1);
  const JobId id = RunJob(scenario, {.min_workers = 1, .max_workers = 3});
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 7, 1));
  scenario.Do(Failed(scenario.job(id), 1, "peer 0 closed its link", 7, 0));
  scenario.ReleaseAll(id, 7);
  EXPECT_THAT(scenario.job(id).excluded, ElementsAre(WorkerId("b0")));
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "c0"));
  for (const int rank : {0, 1}) {
    const v1::Assignment assignment = AssignmentOf(scenario, id, rank);
    for (const v1::RestoreSource& source : assignment.restore().sources()) {
      EXPECT_EQ(source.address().find("b0"), std::string::npos) << source.address();
    }
    for (const std::string& holder : assignment.holders()) {
      EXPECT_EQ(holder.find("b0"), std::string::npos) << holder;
    }
  }
}

}  // namespace
}  // namespace sherd
