#include "coordinator/core/assignment.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "plan/groups.h"
#include "plan/model_shape.h"
#include "plan/parameters.h"
#include "plan/shard_layout.h"
#include "plan/strategy.h"

namespace sherd {
namespace {

v1::Peer DescribePeer(const State& state, int rank, const RankState& member) {
  const WorkerState* worker = FindWorker(state, member.worker);
  SHERD_CHECK(worker != nullptr);
  v1::Peer peer;
  peer.set_rank(rank);
  peer.set_worker_id(member.worker.value());
  peer.set_incarnation(member.incarnation.value());
  peer.set_host(worker->host);
  peer.set_shared_memory_domain(worker->shared_memory_domain);
  peer.set_data_address(worker->data_address);
  peer.set_network_address(worker->network_address);
  return peer;
}

// Shared memory is many times faster, where all members can map it.
v1::Transport ChooseTransport(const v1::ProcessGroup& group, const v1::Assignment& assignment) {
  const auto domain_of = [&](int rank) -> const std::string& {
    return assignment.peers(rank).shared_memory_domain();
  };
  const std::string& domain = domain_of(group.ranks(0));
  const bool shared = std::all_of(group.ranks().begin(), group.ranks().end(),
                                  [&](int rank) { return domain_of(rank) == domain; });
  // Workers that name no domain share memory with themselves alone.
  return shared && (!domain.empty() || group.ranks_size() == 1) ? v1::TRANSPORT_SHM
                                                                : v1::TRANSPORT_TCP;
}

void AddShards(const v1::JobSpec& spec, const v1::ProcessGroup& data_group, int rank,
               v1::Assignment& assignment) {
  const StrategyRow* row = FindStrategy(spec.parallel());
  // Validation lets only strategies through that this build executes.
  if (row == nullptr) return;
  const auto& members = data_group.ranks();
  const auto position = std::find(members.begin(), members.end(), rank) - members.begin();
  for (v1::UnitShard& shard :
       DescribeOwned(BuildInventory(ShapeOf(spec.model())), *row, spec.parallel(), members.size(),
                     static_cast<int>(position))) {
    *assignment.add_shards() = std::move(shard);
  }
}

}  // namespace

v1::Assignment BuildAssignment(const State& state, const JobRecord& job, int rank,
                               absl::string_view secret) {
  const int world = static_cast<int>(job.ranks.size());
  SHERD_CHECK(rank >= 0 && rank < world);
  v1::Assignment assignment;
  assignment.set_job_id(job.id.value());
  assignment.set_epoch(job.epoch.value());
  *assignment.mutable_spec() = job.spec;
  assignment.set_rank(rank);
  assignment.set_world(world);
  assignment.set_secret(std::string(secret));
  for (int peer = 0; peer < world; ++peer) {
    *assignment.add_peers() = DescribePeer(state, peer, job.ranks[peer]);
  }
  const int tensor = static_cast<int>(std::max<int64_t>(1, job.spec.parallel().tensor()));
  const int shard_group = static_cast<int>(job.spec.parallel().shard_group());
  for (const v1::ProcessGroup& group : GroupsOf(BuildGroups(world, tensor, shard_group), rank)) {
    v1::ProcessGroup& added = *assignment.add_groups();
    added = group;
    added.set_transport(ChooseTransport(group, assignment));
    if (group.kind() == v1::GROUP_KIND_DATA) AddShards(job.spec, group, rank, assignment);
  }
  return assignment;
}

}  // namespace sherd
