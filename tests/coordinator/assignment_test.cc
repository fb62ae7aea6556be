#include "coordinator/core/assignment.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "plan/peer_addresses.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void SetModel(v1::ModelSpec& model, int64_t kv_heads) {
  model.set_arch(v1::ARCHITECTURE_LLAMA);
  model.set_layers(2);
  model.set_hidden(32);
  model.set_heads(8);
  model.set_kv_heads(kv_heads);
  model.set_ffn(24);
  model.set_vocab(101);
  model.set_context(17);
}

// The assignments of every rank of a job on eight workers.
std::vector<v1::Assignment> AssignEight(v1::Strategy strategy, int64_t tensor,
                                        int64_t kv_heads = 8) {
  Scenario scenario;
  scenario.JoinWorkers(8);
  const JobId id("tiny-1");
  v1::DurableEvent submitted =
      Submitted(id, {.min_workers = 8, .max_workers = 8, .tensor = tensor});
  v1::JobSpec& spec = *submitted.mutable_job_submitted()->mutable_spec();
  spec.mutable_parallel()->set_strategy(strategy);
  SetModel(*spec.mutable_model(), kv_heads);
  spec = NormalizeJobSpec(spec);
  scenario.Do(submitted);
  std::vector<v1::Assignment> assignments;
  AssignmentBuilder builder;
  for (int rank = 0; rank < 8; ++rank) {
    assignments.push_back(builder.Build(scenario.state(), scenario.job(id), rank, {}));
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

// F4: two heads of keys and values among four members.
TEST(Assignment, NamesTheMembersThatHoldTheSameKeysAndValues) {
  const std::vector<v1::Assignment> all = AssignEight(v1::STRATEGY_ZERO3, 4, /*kv_heads=*/2);
  EXPECT_THAT(Members(all[5], v1::GROUP_KIND_KV_COPY), ElementsAre(4, 5));
  EXPECT_THAT(Members(all[2], v1::GROUP_KIND_KV_COPY), ElementsAre(2, 3));
  EXPECT_THAT(Members(AssignEight(v1::STRATEGY_ZERO3, 4)[5], v1::GROUP_KIND_KV_COPY), SizeIs(0));
}

TEST(Assignment, NamesEveryPeerAndTheSecret) {
  const std::vector<v1::Assignment> all = AssignEight(v1::STRATEGY_ZERO3, 1);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(all[rank].job_id(), "tiny-1");
    EXPECT_EQ(all[rank].epoch(), 1);
    EXPECT_EQ(all[rank].rank(), rank);
    EXPECT_EQ(all[rank].world(), 8);
    EXPECT_EQ(all[rank].secret(), "secret of tiny-1:1");
    EXPECT_EQ(all[rank].ranks_on_host(), 8);
    const auto peers = ReadPeers(all[rank].peers());
    ASSERT_TRUE(peers.ok()) << peers.status();
    ASSERT_THAT(*peers, SizeIs(8));
    EXPECT_EQ(peers->at(3), "unix-abstract:w3");
    EXPECT_THAT(all[rank].network_peers(), IsEmpty());
  }
}

std::vector<int> RanksOf(const absl::StatusOr<PeerAddresses>& peers) {
  std::vector<int> ranks;
  if (!peers.ok()) return ranks;
  for (const auto& [rank, address] : *peers) ranks.push_back(rank);
  return ranks;
}

TEST(Assignment, NamesNobodyElse) {
  const std::vector<v1::Assignment> all = AssignEight(v1::STRATEGY_ZERO3, 2);
  EXPECT_THAT(RanksOf(ReadPeers(all[0].peers())), ElementsAre(0, 1, 2, 4, 6));
  EXPECT_THAT(RanksOf(ReadPeers(all[5].peers())), ElementsAre(1, 3, 4, 5, 7));
}

// Of a rank of a job over two hosts, of three workers and of one.
v1::Assignment AssignOverHosts(int rank, int64_t shard_group) {
  Scenario scenario;
  for (const char* worker : {"a0", "a1", "a2"}) scenario.Do(Joined(worker, 1, "a"));
  scenario.Do(Joined("b0", 1, "b"));
  const JobId id("tiny-1");
  v1::DurableEvent submitted = Submitted(id, {.min_workers = 4});
  v1::JobSpec& spec = *submitted.mutable_job_submitted()->mutable_spec();
  spec.mutable_parallel()->set_strategy(shard_group > 0 ? v1::STRATEGY_HYBRID : v1::STRATEGY_ZERO3);
  spec.mutable_parallel()->set_shard_group(shard_group);
  SetModel(*spec.mutable_model(), 8);
  spec = NormalizeJobSpec(spec);
  scenario.Do(submitted);
  return AssignmentBuilder().Build(scenario.state(), scenario.job(id), rank, {});
}

bool SharesMemory(const v1::Assignment& assignment, v1::GroupKind kind) {
  return std::any_of(
      assignment.groups().begin(), assignment.groups().end(),
      [&](const auto& group) { return group.kind() == kind && group.shares_memory(); });
}

TEST(Assignment, AGroupInOneSharedMemoryDomainUsesItAndAnyOtherTcp) {
  for (int rank = 0; rank < 4; ++rank) {
    const v1::Assignment whole = AssignOverHosts(rank, 0);
    EXPECT_FALSE(SharesMemory(whole, v1::GROUP_KIND_DATA));
    EXPECT_THAT(RanksOf(ReadPeers(whole.network_peers())), ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(ReadPeers(whole.network_peers())->at(3), "tcp:b:1");
    // Shard groups {0, 1} and {2, 3}, replica groups {0, 2} and {1, 3}; rank 3 is elsewhere.
    const v1::Assignment hybrid = AssignOverHosts(rank, 2);
    EXPECT_TRUE(SharesMemory(hybrid, v1::GROUP_KIND_TENSOR)) << rank;
    EXPECT_EQ(SharesMemory(hybrid, v1::GROUP_KIND_SHARD), rank < 2) << rank;
    EXPECT_EQ(SharesMemory(hybrid, v1::GROUP_KIND_REPLICA), rank % 2 == 0) << rank;
  }
  EXPECT_THAT(RanksOf(ReadPeers(AssignOverHosts(0, 2).peers())), ElementsAre(0, 1, 2));
}

// Rank 0's assignment of a job on two workers of one host, which is on no network.
v1::Assignment AssignGpus(const std::string& first, const std::string& second,
                          bool save_and_stop = false) {
  Scenario scenario;
  for (const std::string& gpu : {first, second}) {
    v1::DurableEvent joined = Joined(gpu == first ? "w0" : "w1", 1, "a");
    v1::WorkerJoined& worker = *joined.mutable_worker_joined();
    worker.clear_network_address();
    worker.mutable_gpu()->set_id(gpu.substr(0, gpu.find('/')));
    worker.mutable_gpu()->set_nccl_version(22809);
    worker.mutable_gpu()->set_address(absl::StrCat("tcp:127.0.0.1:", worker.worker_id()));
    scenario.Do(joined);
  }
  const JobId id("tiny-1");
  v1::DurableEvent submitted = Submitted(id, {.min_workers = 2});
  v1::JobSpec& spec = *submitted.mutable_job_submitted()->mutable_spec();
  SetModel(*spec.mutable_model(), 8);
  spec = NormalizeJobSpec(spec);
  scenario.Do(submitted);
  JobRecord job = scenario.job(id);
  job.save_and_stop = save_and_stop;
  return AssignmentBuilder().Build(scenario.state(), job, 0, {});
}

TEST(Assignment, RanksWithGpusOfTheirOwnFormGroupsOverNccl) {
  const v1::Assignment own = AssignGpus("GPU-a", "GPU-b");
  ASSERT_GE(own.groups_size(), 2);
  for (const v1::ProcessGroup& group : own.groups()) {
    EXPECT_TRUE(group.over_nccl());
    EXPECT_FALSE(group.shares_memory());
  }
  EXPECT_EQ(ReadPeers(own.network_peers())->at(1), "tcp:127.0.0.1:w1");
  EXPECT_THAT(own.peers(), IsEmpty());
  // On one GPU; and where a GPU may have failed that saving does not need.
  for (const v1::Assignment& through_the_host :
       {AssignGpus("GPU-a/0", "GPU-a/1"), AssignGpus("GPU-a", "GPU-b", /*save_and_stop=*/true)}) {
    for (const v1::ProcessGroup& group : through_the_host.groups()) {
      EXPECT_FALSE(group.over_nccl());
      EXPECT_TRUE(group.shares_memory());
    }
    EXPECT_THAT(through_the_host.network_peers(), IsEmpty());
  }
}

// A job on `hosts` hosts of eight workers each, in memory domains and at addresses of their own.
State LargeState(int hosts, int64_t tensor) {
  State state;
  JobRecord job;
  job.id = JobId("large-1");
  job.epoch = Epoch(1);
  job.state = v1::JOB_STATE_FORMING;
  job.secret = std::string(32, 's');
  job.spec.set_name("large");
  job.spec.mutable_model()->set_preset("llama3-70b");
  job.spec.mutable_data()->add_train("/data/corpus/train.txt");
  job.spec.mutable_parallel()->set_tensor(tensor);
  job.spec = NormalizeJobSpec(job.spec);
  for (int host = 0; host < hosts; ++host) {
    const std::string name =
        absl::StrCat("10.", 16 + host / 65536, ".", host / 256 % 256, ".", host % 256);
    for (int slot = 0; slot < 8; ++slot) {
      WorkerState worker;
      worker.id = WorkerId(absl::StrCat(name, "/cpu:", slot));
      worker.incarnation = Incarnation(uint64_t{1} << 63);
      worker.host = name;
      worker.shared_memory_domain = name;
      worker.data_address = absl::StrCat("unix-abstract:sherd-", host, "-", slot);
      worker.network_address =
          absl::StrCat("tcp:", name, ":", 40000 + (host * 7919 + slot) % 20000);
      worker.alive = true;
      job.ranks.push_back({worker.id, worker.incarnation, RankPhase::kForming, "", false, {}});
      state.workers[worker.id] = worker;
    }
  }
  state.jobs[job.id] = std::move(job);
  return state;
}

// A rank of 16,384 is told what it needs, and that is little.
TEST(Assignment, OfALargeWorldIsASmallMessage) {
  const State state = LargeState(/*hosts=*/2048, /*tensor=*/8);
  const JobRecord& job = state.jobs.begin()->second;
  AssignmentBuilder builder;
  size_t most = 0;
  for (const int rank : {0, 1, 7, 8, 4095, 8192, 12345, 16376, 16383}) {
    const v1::Assignment assignment = builder.Build(state, job, rank, {});
    most = std::max(most, assignment.ByteSizeLong());
    EXPECT_EQ(assignment.world(), 16384);
    EXPECT_EQ(assignment.ranks_on_host(), 8);
    EXPECT_TRUE(assignment.groups(0).shares_memory());
    EXPECT_FALSE(assignment.groups(1).shares_memory());
    const auto near = ReadPeers(assignment.peers());
    const auto far = ReadPeers(assignment.network_peers());
    ASSERT_TRUE(near.ok() && far.ok()) << near.status() << far.status();
    ASSERT_THAT(*near, SizeIs(8));
    ASSERT_THAT(*far, SizeIs(2048));
    for (const auto& [peer, address] : *near) {
      EXPECT_EQ(address, FindWorker(state, job.ranks[peer].worker)->data_address);
    }
    for (const auto& [peer, address] : *far) {
      EXPECT_EQ(address, FindWorker(state, job.ranks[peer].worker)->network_address);
    }
  }
  EXPECT_LT(most, 64 * 1024);
  RecordProperty("bytes", absl::StrCat(most));
}

TEST(Assignment, FollowsTheEpoch) {
  State state = LargeState(/*hosts=*/2, /*tensor=*/2);
  JobRecord& job = state.jobs.begin()->second;
  AssignmentBuilder builder;
  EXPECT_EQ(builder.Build(state, job, 0, {}).world(), 16);
  job.epoch = Epoch(2);
  job.ranks.resize(8);
  EXPECT_EQ(builder.Build(state, job, 0, {}).world(), 8);
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
