#include "plan/groups.h"

#include "common/check.h"

namespace sherd {
namespace {

void Append(v1::GroupKind kind, const std::vector<std::vector<int>>& groups, int index,
            std::vector<v1::ProcessGroup>& out) {
  const std::vector<int>& ranks = groups[static_cast<size_t>(index)];
  v1::ProcessGroup& group = out.emplace_back();
  group.set_kind(kind);
  group.mutable_ranks()->Assign(ranks.begin(), ranks.end());
}

// Cuts a data-parallel group into its shard groups and its replica groups.
void CutDataGroup(const std::vector<int>& data, int shard_group, Groups& groups) {
  const int degree = static_cast<int>(data.size());
  SHERD_CHECK(shard_group > 0 && degree % shard_group == 0);
  for (int first = 0; first < degree; first += shard_group) {
    groups.shard.emplace_back(data.begin() + first, data.begin() + first + shard_group);
  }
  for (int place = 0; place < shard_group; ++place) {
    std::vector<int>& copies = groups.replica.emplace_back();
    for (int at = place; at < degree; at += shard_group) {
      copies.push_back(data[static_cast<size_t>(at)]);
    }
  }
}

}  // namespace

absl::string_view NameOf(v1::GroupKind kind) {
  switch (kind) {
    case v1::GROUP_KIND_TENSOR:
      return "tensor";
    case v1::GROUP_KIND_DATA:
      return "data";
    case v1::GROUP_KIND_SHARD:
      return "shard";
    case v1::GROUP_KIND_REPLICA:
      return "replica";
    case v1::GROUP_KIND_KV_COPY:
      return "kv_copy";
    default:
      return "";
  }
}

Groups BuildGroups(int world, int tensor_degree, int shard_group, int kv_copies) {
  SHERD_CHECK(tensor_degree >= 1 && world >= 1 && world % tensor_degree == 0);
  SHERD_CHECK(kv_copies >= 1 && tensor_degree % kv_copies == 0);
  Groups groups{tensor_degree, shard_group, kv_copies, {}, {}, {}, {}, {}};
  groups.tensor.resize(static_cast<size_t>(world / tensor_degree));
  groups.data.resize(static_cast<size_t>(tensor_degree));
  if (kv_copies > 1) groups.kv_copy.resize(static_cast<size_t>(world / kv_copies));
  for (int rank = 0; rank < world; ++rank) {
    groups.tensor[static_cast<size_t>(rank / tensor_degree)].push_back(rank);
    groups.data[static_cast<size_t>(rank % tensor_degree)].push_back(rank);
    if (kv_copies > 1) groups.kv_copy[static_cast<size_t>(rank / kv_copies)].push_back(rank);
  }
  if (shard_group == 0) return groups;
  for (const std::vector<int>& data : groups.data) CutDataGroup(data, shard_group, groups);
  return groups;
}

std::vector<v1::ProcessGroup> GroupsOf(const Groups& groups, int rank) {
  const int tensor_index = rank % groups.tensor_degree;
  const int data_index = rank / groups.tensor_degree;
  const int degree = static_cast<int>(groups.tensor.size());
  std::vector<v1::ProcessGroup> out;
  Append(v1::GROUP_KIND_TENSOR, groups.tensor, data_index, out);
  Append(v1::GROUP_KIND_DATA, groups.data, tensor_index, out);
  if (const int sharers = groups.shard_group; sharers > 0) {
    Append(v1::GROUP_KIND_SHARD, groups.shard,
           tensor_index * (degree / sharers) + data_index / sharers, out);
    Append(v1::GROUP_KIND_REPLICA, groups.replica, tensor_index * sharers + data_index % sharers,
           out);
  }
  if (groups.kv_copies > 1) {
    Append(v1::GROUP_KIND_KV_COPY, groups.kv_copy, rank / groups.kv_copies, out);
  }
  return out;
}

GroupMedia MediaOf(const v1::Assignment& assignment) {
  const auto of = [&](v1::GroupKind kind) {
    for (const v1::ProcessGroup& group : assignment.groups()) {
      if (group.kind() != kind) continue;
      if (group.over_nccl()) return Medium::kNccl;
      return group.shares_memory() ? Medium::kSharedMemory : Medium::kTcp;
    }
    return Medium::kSharedMemory;
  };
  const bool shard_groups = assignment.spec().parallel().shard_group() > 0;
  return {.sharers = of(shard_groups ? v1::GROUP_KIND_SHARD : v1::GROUP_KIND_DATA),
          .replicas = of(v1::GROUP_KIND_REPLICA),
          .tensor = of(v1::GROUP_KIND_TENSOR),
          .kv_copies = of(v1::GROUP_KIND_KV_COPY)};
}

}  // namespace sherd
