#include "plan/groups.h"

#include "common/check.h"

namespace sherd {
namespace {

void AppendIfMember(const std::vector<std::vector<int>>& groups, int rank, v1::GroupKind kind,
                    std::vector<v1::ProcessGroup>& out) {
  for (const std::vector<int>& ranks : groups) {
    for (const int member : ranks) {
      if (member != rank) continue;
      v1::ProcessGroup group;
      group.set_kind(kind);
      for (const int each : ranks) group.add_ranks(each);
      out.push_back(group);
    }
  }
}

}  // namespace

Groups BuildGroups(int world, int tensor_degree, int shard_group) {
  SHERD_CHECK(tensor_degree >= 1 && world >= 1 && world % tensor_degree == 0);
  Groups groups;
  groups.tensor.resize(static_cast<size_t>(world / tensor_degree));
  groups.data.resize(static_cast<size_t>(tensor_degree));
  for (int rank = 0; rank < world; ++rank) {
    groups.tensor[static_cast<size_t>(rank / tensor_degree)].push_back(rank);
    groups.data[static_cast<size_t>(rank % tensor_degree)].push_back(rank);
  }
  if (shard_group == 0) return groups;
  for (const std::vector<int>& data : groups.data) {
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
  return groups;
}

std::vector<v1::ProcessGroup> GroupsOf(const Groups& groups, int rank) {
  std::vector<v1::ProcessGroup> out;
  AppendIfMember(groups.tensor, rank, v1::GROUP_KIND_TENSOR, out);
  AppendIfMember(groups.data, rank, v1::GROUP_KIND_DATA, out);
  AppendIfMember(groups.shard, rank, v1::GROUP_KIND_SHARD, out);
  AppendIfMember(groups.replica, rank, v1::GROUP_KIND_REPLICA, out);
  return out;
}

GroupTransports TransportsOf(const v1::Assignment& assignment) {
  const auto of = [&](v1::GroupKind kind) {
    for (const v1::ProcessGroup& group : assignment.groups()) {
      if (group.kind() == kind) return group.transport();
    }
    return v1::TRANSPORT_SHM;
  };
  const bool shard_groups = assignment.spec().parallel().shard_group() > 0;
  return {.sharers = of(shard_groups ? v1::GROUP_KIND_SHARD : v1::GROUP_KIND_DATA),
          .replicas = of(v1::GROUP_KIND_REPLICA),
          .tensor = of(v1::GROUP_KIND_TENSOR),
          .kv_copies = of(v1::GROUP_KIND_KV_COPY)};
}

}  // namespace sherd
