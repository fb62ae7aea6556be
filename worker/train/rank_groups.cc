#include "worker/train/rank_groups.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "plan/peer_addresses.h"

namespace sherd {
namespace {

// kNotFound when the assignment names no such group.
absl::StatusOr<RankGroup> FindGroup(const v1::Assignment& assignment, v1::GroupKind kind) {
  for (const v1::ProcessGroup& group : assignment.groups()) {
    if (group.kind() != kind) continue;
    RankGroup found;
    found.kind = kind;
    found.over_nccl = group.over_nccl();
    found.transport = group.shares_memory() && !found.over_nccl ? Transport::kShm : Transport::kTcp;
    for (const int rank : group.ranks()) {
      if (rank == assignment.rank()) found.index = static_cast<int>(found.ranks.size());
      if (rank < 0 || rank >= assignment.world()) {
        return absl::InvalidArgumentError(absl::StrCat("the assignment names rank ", rank,
                                                       " of a world of ", assignment.world()));
      }
      found.ranks.push_back(rank);
    }
    if (found.index >= 0) return found;
  }
  return absl::NotFoundError(
      absl::StrCat("the assignment names no ", v1::GroupKind_Name(kind), " that this rank is in"));
}

absl::Status FindShardGroups(const v1::Assignment& assignment, RankGroups& groups) {
  groups.sharers = groups.data;
  const int64_t shard_group = assignment.spec().parallel().shard_group();
  if (shard_group == 0) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(groups.sharers, FindGroup(assignment, v1::GROUP_KIND_SHARD));
  SHERD_ASSIGN_OR_RETURN(RankGroup replicas, FindGroup(assignment, v1::GROUP_KIND_REPLICA));
  const int64_t sharers = static_cast<int64_t>(groups.sharers.ranks.size());
  const int64_t copies = static_cast<int64_t>(replicas.ranks.size());
  const bool fits = sharers == shard_group &&
                    sharers * copies == static_cast<int64_t>(groups.data.ranks.size()) &&
                    groups.data.index == replicas.index * sharers + groups.sharers.index;
  if (!fits) {
    return absl::InvalidArgumentError(
        "the assignment's shard and replica groups do not make up its data-parallel group");
  }
  if (copies > 1) groups.replicas = std::move(replicas);
  return absl::OkStatus();
}

}  // namespace

absl::string_view KindName(v1::GroupKind kind) {
  switch (kind) {
    case v1::GROUP_KIND_TENSOR:
      return "tensor-parallel";
    case v1::GROUP_KIND_SHARD:
      return "shard";
    case v1::GROUP_KIND_REPLICA:
      return "replica";
    case v1::GROUP_KIND_KV_COPY:
      return "key and value";
    default:
      return "data-parallel";
  }
}

absl::StatusOr<RankGroups> FindGroups(const v1::Assignment& assignment, const RankPlan& plan) {
  RankGroups groups;
  SHERD_ASSIGN_OR_RETURN(groups.data, FindGroup(assignment, v1::GROUP_KIND_DATA));
  SHERD_RETURN_IF_ERROR(FindShardGroups(assignment, groups));
  const int64_t tensor = assignment.spec().parallel().tensor();
  const int64_t world = static_cast<int64_t>(groups.data.ranks.size()) * tensor;
  SHERD_ASSIGN_OR_RETURN(RankGroup members, FindGroup(assignment, v1::GROUP_KIND_TENSOR));
  const bool fits = static_cast<int64_t>(members.ranks.size()) == tensor &&
                    world == assignment.world() &&
                    assignment.rank() == groups.data.index * tensor + members.index;
  if (!fits) {
    return absl::InvalidArgumentError(
        "the assignment's tensor-parallel and data-parallel groups do not make up its world");
  }
  if (tensor > 1) groups.tensor = std::move(members);
  if (!SumsOverKvCopies(plan)) return groups;
  SHERD_ASSIGN_OR_RETURN(groups.kv_copies, FindGroup(assignment, v1::GROUP_KIND_KV_COPY));
  if (static_cast<int>(groups.kv_copies.ranks.size()) != plan.part().kv_copies) {
    return absl::InvalidArgumentError(
        "the assignment's group of copies of keys and values is not of the size that the model "
        "asks for");
  }
  return groups;
}

absl::Status CheckShards(const v1::Assignment& assignment, const RankPlan& plan) {
  const std::vector<v1::UnitShard> expected =
      DescribeOwned(plan.inventory, plan.strategy, assignment.spec().parallel(),
                    plan.micro_batches.degree, plan.data_rank);
  bool equal = static_cast<int>(expected.size()) == assignment.shards_size();
  for (int unit = 0; equal && unit < assignment.shards_size(); ++unit) {
    equal = google::protobuf::util::MessageDifferencer::Equals(expected[static_cast<size_t>(unit)],
                                                               assignment.shards(unit));
  }
  if (equal) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the coordinator's shard layout is not the one that this worker computes; run coordinator "
      "and "
      "workers of the same version");
}

absl::Status CheckStoredFor(const v1::Assignment& assignment) {
  for (const int owner : assignment.stored_for()) {
    if (owner >= 0 && owner < assignment.world() && owner != assignment.rank()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the assignment has the shard of rank ", owner,
                                                   " of a world of ", assignment.world(),
                                                   " stored with rank ", assignment.rank()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> AddressesOf(const v1::Assignment& assignment,
                                                     const RankGroup& group) {
  const bool tcp = group.transport == Transport::kTcp;
  SHERD_ASSIGN_OR_RETURN(const PeerAddresses peers,
                         ReadPeers(tcp ? assignment.network_peers() : assignment.peers()));
  std::vector<std::string> addresses;
  for (const int rank : group.ranks) {
    const auto found = peers.find(rank);
    if (found == peers.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the assignment names no address of rank ", rank));
    }
    addresses.push_back(found->second);
  }
  return addresses;
}

}  // namespace sherd
