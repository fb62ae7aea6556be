#include "plan/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> Members(const std::vector<v1::ProcessGroup>& groups, v1::GroupKind kind) {
  for (const v1::ProcessGroup& group : groups) {
    if (group.kind() == kind) return {group.ranks().begin(), group.ranks().end()};
  }
  return {};
}

TEST(Groups, TensorGroupsAreAdjacentAndDataGroupsStride) {
  const Groups groups = BuildGroups(8, 2);
  EXPECT_THAT(groups.tensor, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5),
                                         ElementsAre(6, 7)));
  EXPECT_THAT(groups.data, ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST(Groups, ShardGroupsAreAdjacentMembersOfADataGroupAndReplicasStride) {
  const Groups groups = BuildGroups(8, 2, 2);
  EXPECT_THAT(groups.shard, ElementsAre(ElementsAre(0, 2), ElementsAre(4, 6), ElementsAre(1, 3),
                                        ElementsAre(5, 7)));
  EXPECT_THAT(groups.replica, ElementsAre(ElementsAre(0, 4), ElementsAre(2, 6), ElementsAre(1, 5),
                                          ElementsAre(3, 7)));
  EXPECT_EQ(GroupsOf(groups, 5).size(), 4u);
}

TEST(Groups, WithoutTensorParallelismOneDataGroupHoldsAll) {
  const Groups groups = BuildGroups(3, 1);
  EXPECT_THAT(groups.data, ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(groups.tensor, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

// F4: four members of eight share a head of keys and values, or all of them do.
TEST(Groups, CopiesOfKeysAndValuesAreAdjacentMembersOfATensorGroup) {
  EXPECT_THAT(BuildGroups(16, 8, 0, 4).kv_copy,
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7),
                          ElementsAre(8, 9, 10, 11), ElementsAre(12, 13, 14, 15)));
  const Groups one_head = BuildGroups(4, 2, 0, 2);
  EXPECT_EQ(one_head.kv_copy, one_head.tensor);
  EXPECT_THAT(Members(GroupsOf(one_head, 3), v1::GROUP_KIND_KV_COPY), ElementsAre(2, 3));
  EXPECT_THAT(BuildGroups(4, 2, 0, 1).kv_copy, IsEmpty());
  EXPECT_THAT(Members(GroupsOf(BuildGroups(4, 2), 3), v1::GROUP_KIND_KV_COPY), IsEmpty());
}

// Every member of a group names the same members, and each kind of group holds every rank once.
TEST(Groups, AreTheSameToAllTheirMembersOnEveryGrid) {
  for (const int tensor : {1, 2, 4, 8}) {
    for (const int data : {1, 2, 3, 4, 6}) {
      for (const int shard_group : {0, 1, 2, 3}) {
        if (shard_group > 0 && data % shard_group != 0) continue;
        for (int copies = 1; copies <= tensor; copies *= 2) {
          const int world = tensor * data;
          const Groups groups = BuildGroups(world, tensor, shard_group, copies);
          std::map<v1::GroupKind, std::map<std::vector<int>, int>> named;
          for (int rank = 0; rank < world; ++rank) {
            for (const v1::ProcessGroup& group : GroupsOf(groups, rank)) {
              const std::vector<int> ranks(group.ranks().begin(), group.ranks().end());
              EXPECT_TRUE(std::count(ranks.begin(), ranks.end(), rank) == 1);
              EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
              ++named[group.kind()][ranks];
            }
          }
          for (const auto& [kind, by_ranks] : named) {
            size_t members = 0;
            for (const auto& [ranks, times] : by_ranks) {
              EXPECT_EQ(static_cast<size_t>(times), ranks.size());
              members += ranks.size();
            }
            EXPECT_EQ(members, static_cast<size_t>(world));
          }
          EXPECT_EQ(named.size(), 2u + (shard_group > 0 ? 2 : 0) + (copies > 1 ? 1 : 0));
        }
      }
    }
  }
}

TEST(Groups, MediaAreThoseOfTheGroupsThatTheRankForms) {
  v1::Assignment assignment;
  for (v1::ProcessGroup& group : GroupsOf(BuildGroups(8, 2, 2), 0)) {
    group.set_shares_memory(group.kind() == v1::GROUP_KIND_TENSOR ||
                            group.kind() == v1::GROUP_KIND_SHARD);
    *assignment.add_groups() = group;
  }
  const GroupMedia whole = MediaOf(assignment);
  EXPECT_EQ(whole.sharers, Medium::kTcp);
  EXPECT_EQ(whole.tensor, Medium::kSharedMemory);
  assignment.mutable_spec()->mutable_parallel()->set_shard_group(2);
  const GroupMedia cut = MediaOf(assignment);
  EXPECT_EQ(cut.sharers, Medium::kSharedMemory);
  EXPECT_EQ(cut.replicas, Medium::kTcp);
  for (v1::ProcessGroup& group : *assignment.mutable_groups()) {
    group.set_shares_memory(false);
    group.set_over_nccl(group.kind() != v1::GROUP_KIND_REPLICA);
  }
  EXPECT_EQ(MediaOf(assignment).sharers, Medium::kNccl);
  EXPECT_EQ(MediaOf(assignment).replicas, Medium::kTcp);
}

TEST(Groups, EveryRankIsInOneGroupOfEachKind) {
  const Groups groups = BuildGroups(12, 4);
  for (int rank = 0; rank < 12; ++rank) {
    const std::vector<v1::ProcessGroup> mine = GroupsOf(groups, rank);
    ASSERT_EQ(mine.size(), 2u);
    EXPECT_EQ(mine[0].kind(), v1::GROUP_KIND_TENSOR);
    EXPECT_EQ(mine[0].ranks_size(), 4);
    EXPECT_EQ(mine[1].kind(), v1::GROUP_KIND_DATA);
    EXPECT_EQ(mine[1].ranks_size(), 3);
  }
}

}  // namespace
}  // namespace sherd
