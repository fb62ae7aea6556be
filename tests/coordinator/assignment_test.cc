#include "coordinator/core/assignment.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

void DescribeSmallModel(v1::ModelSpec& model) {
  model.set_arch(v1::ARCHITECTURE_GPT2);
  model.set_layers(2);
  model.set_hidden(24);
  model.set_heads(3);
  model.set_vocab(101);
  model.set_context(17);
}

// The assignments of every rank of a job on eight workers.
std::vector<v1::Assignment> AssignEight(v1::Strategy strategy, int64_t tensor) {
  Scenario scenario;
  scenario.JoinWorkers(8);
  const JobId id("tiny-1");
  v1::DurableEvent submitted =
      Submitted(id, {.min_workers = 8, .max_workers = 8, .tensor = tensor});
  v1::JobSpec& spec = *submitted.mutable_job_submitted()->mutable_spec();
  spec.mutable_parallel()->set_strategy(strategy);
  DescribeSmallModel(*spec.mutable_model());
  spec = NormalizeJobSpec(spec);
  scenario.Do(submitted);
  std::vector<v1::Assignment> assignments;
  for (int rank = 0; rank < 8; ++rank) {
    assignments.push_back(BuildAssignment(scenario.state(), scenario.job(id), rank, "s3cret"));
  }
  return assignments;
}

std::vector<int> Members(const v1::Assignment& assignment, v1::GroupKind kind) {
  for (const v1::ProcessGroup& group : assignment.groups()) {
    if (group.kind() == kind) return {group.ranks().begin(), group.ranks().end()};
  }
  return {};
}

TEST(Assignment, GroupsOfTensorTwoByDataFour) {
  const std::vector<v1::Assignment> all = AssignEight(v1::STRATEGY_ZERO3, 2);
  const std::vector<std::vector<int>> tensor = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const std::vector<std::vector<int>> data = {{0, 2, 4, 6}, {1, 3, 5, 7}};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(Members(all[rank], v1::GROUP_KIND_TENSOR), tensor[rank / 2]) << rank;
    EXPECT_EQ(Members(all[rank], v1::GROUP_KIND_DATA), data[rank % 2]) << rank;
  }
}

TEST(Assignment, NamesEveryPeerAndTheSecret) {
  const std::vector<v1::Assignment> all = AssignEight(v1::STRATEGY_ZERO3, 1);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(all[rank].job_id(), "tiny-1");
    EXPECT_EQ(all[rank].epoch(), 1);
    EXPECT_EQ(all[rank].rank(), rank);
    EXPECT_EQ(all[rank].world(), 8);
    EXPECT_EQ(all[rank].secret(), "s3cret");
    ASSERT_THAT(all[rank].peers(), SizeIs(8));
    EXPECT_EQ(all[rank].peers(3).rank(), 3);
    EXPECT_EQ(all[rank].peers(3).worker_id(), "w3");
    EXPECT_EQ(all[rank].peers(3).incarnation(), 1u);
    EXPECT_EQ(all[rank].peers(3).data_address(), "unix-abstract:w3");
    EXPECT_EQ(all[rank].peers(3).network_address(), "tcp:host:1");
  }
}

// Of a rank of a job over two hosts of three and of one worker.
v1::Assignment AssignOverHosts(int rank, int64_t shard_group) {
  Scenario scenario;
  for (const char* worker : {"a0", "a1", "a2"}) scenario.Do(Joined(worker, 1, "a"));
  scenario.Do(Joined("b0", 1, "b"));
  const JobId id("tiny-1");
  v1::DurableEvent submitted = Submitted(id, {.min_workers = 4});
  v1::JobSpec& spec = *submitted.mutable_job_submitted()->mutable_spec();
  spec.mutable_parallel()->set_strategy(shard_group > 0 ? v1::STRATEGY_HYBRID : v1::STRATEGY_ZERO3);
  spec.mutable_parallel()->set_shard_group(shard_group);
  DescribeSmallModel(*spec.mutable_model());
  spec = NormalizeJobSpec(spec);
  scenario.Do(submitted);
  return BuildAssignment(scenario.state(), scenario.job(id), rank, "s3cret");
}

v1::Transport TransportOf(const v1::Assignment& assignment, v1::GroupKind kind) {
  for (const v1::ProcessGroup& group : assignment.groups()) {
    if (group.kind() == kind) return group.transport();
  }
  return v1::TRANSPORT_UNSPECIFIED;
}

TEST(Assignment, AGroupInOneSharedMemoryDomainUsesItAndAnyOtherTcp) {
  for (const v1::Assignment& assignment : AssignEight(v1::STRATEGY_ZERO3, 2)) {
    EXPECT_EQ(TransportOf(assignment, v1::GROUP_KIND_DATA), v1::TRANSPORT_SHM);
    EXPECT_EQ(TransportOf(assignment, v1::GROUP_KIND_TENSOR), v1::TRANSPORT_SHM);
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(TransportOf(AssignOverHosts(rank, 0), v1::GROUP_KIND_DATA), v1::TRANSPORT_TCP);
    // Shard groups {0, 1} and {2, 3}, replica groups {0, 2} and {1, 3}; rank 3 is elsewhere.
    const v1::Assignment hybrid = AssignOverHosts(rank, 2);
    EXPECT_EQ(TransportOf(hybrid, v1::GROUP_KIND_TENSOR), v1::TRANSPORT_SHM) << rank;
    EXPECT_EQ(TransportOf(hybrid, v1::GROUP_KIND_SHARD),
              rank < 2 ? v1::TRANSPORT_SHM : v1::TRANSPORT_TCP)
        << rank;
    EXPECT_EQ(TransportOf(hybrid, v1::GROUP_KIND_REPLICA),
              rank % 2 == 0 ? v1::TRANSPORT_SHM : v1::TRANSPORT_TCP)
        << rank;
  }
}

// F10, F59: the shards of a unit meet without gap or overlap, also when nothing divides.
TEST(Assignment, ShardsOfADataGroupTileEveryUnit) {
  const std::vector<v1::Assignment> all = AssignEight(v1::STRATEGY_ZERO3, 2);
  ASSERT_THAT(all[0].shards(), SizeIs(4));
  for (int unit = 0; unit < 4; ++unit) {
    int64_t reached = 0;
    for (const int rank : {0, 2, 4, 6}) {
      const v1::UnitShard& shard = all[rank].shards(unit);
      EXPECT_EQ(shard.begin(), reached);
      reached = shard.end();
      EXPECT_EQ(shard.SerializeAsString(), all[rank + 1].shards(unit).SerializeAsString());
    }
    EXPECT_EQ(reached, all[0].shards(unit).padded_elements());
    EXPECT_GE(reached, all[0].shards(unit).unit_elements());
  }
}

TEST(Assignment, AStrategyThatShardsNothingGetsWholeUnits) {
  for (const v1::Assignment& assignment : AssignEight(v1::STRATEGY_DDP, 1)) {
    for (const v1::UnitShard& shard : assignment.shards()) {
      EXPECT_EQ(shard.begin(), 0);
      EXPECT_EQ(shard.end(), shard.padded_elements());
      EXPECT_GE(shard.end(), shard.unit_elements());
    }
  }
}

}  // namespace
}  // namespace sherd
