#include "coordinator/core/assignment.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/transport.h"
#include "coordinator/core/trials.h"
#include "plan/holdings.h"
#include "plan/peer_addresses.h"
#include "plan/world_layout.h"

namespace sherd {

// What the ranks of an epoch have in common.
struct AssignmentBuilder::World {
  // What is told of a rank's worker.
  struct Member {
    std::string data_address;
    std::string network_address;
    std::string shared_memory_domain;
    // Where members of groups over TCP come to it, and those of groups over NCCL also if it is on
    // no network.
    std::string stream_address;
    int32_t nccl_version = 0;  // NcclVersions
    int32_t ranks_on_host = 0;
  };

  World(const State& state, const JobRecord& job);
  bool IsOf(const JobRecord& record) const { return job == record.id && epoch == record.epoch; }
  GroupTransport TransportOf(const v1::ProcessGroup& group) const;
  // Of rank `rank`: all that share memory with it; and all, where each can be come to.
  void AddAllPeers(int rank, std::set<int>& near, std::set<int>& far) const;
  void AppendPeers(const std::set<int>& ranks, std::string Member::*address, Peers& peers) const;

  const JobId job;
  const Epoch epoch;
  const WorldLayout layout;
  std::vector<Member> members;  // by rank
  const std::map<WorkerId, std::vector<int>> stored;
};

AssignmentBuilder::World::World(const State& state, const JobRecord& record)
    : job(record.id),
      epoch(record.epoch),
      layout(record.spec, static_cast<int>(record.ranks.size())),
      stored(StoredOverNetwork(state, record)) {
  std::vector<std::string> hosts;
  std::map<std::string, int32_t> ranks_by_host;
  std::vector<const v1::Gpu*> gpus;
  for (const RankState& rank : record.ranks) {
    const WorkerState* worker = FindWorker(state, rank.worker);
    SHERD_CHECK(worker != nullptr);
    const std::string& network = worker->network_address;
    members.push_back({.data_address = worker->data_address,
                       .network_address = network,
                       .shared_memory_domain = worker->shared_memory_domain,
                       .stream_address = network.empty() ? worker->gpu.address() : network});
    gpus.push_back(&worker->gpu);
    hosts.push_back(worker->host);
    ++ranks_by_host[worker->host];
  }
  const std::vector<int32_t> nccl_versions = NcclVersions(gpus);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    // Who only saves may do so without its GPU, which may have failed.
    if (!record.save_and_stop) members[rank].nccl_version = nccl_versions[rank];
    members[rank].ranks_on_host = ranks_by_host.at(hosts[rank]);
  }
}

GroupTransport AssignmentBuilder::World::TransportOf(const v1::ProcessGroup& group) const {
  std::vector<TransportClaim> claims;
  for (const int rank : group.ranks()) {
    const Member& member = members[static_cast<size_t>(rank)];
    claims.push_back({.memory_domain = member.shared_memory_domain,
                      .on_network = !member.network_address.empty(),
                      .nccl_version = member.nccl_version});
  }
  return ChooseTransport(claims);
}

void AssignmentBuilder::World::AddAllPeers(int rank, std::set<int>& near,
                                           std::set<int>& far) const {
  const Member& own = members[static_cast<size_t>(rank)];
  bool reachable = true;
  for (size_t other = 0; other < members.size(); ++other) {
    const Member& member = members[other];
    const bool shares = !own.shared_memory_domain.empty() &&
                        member.shared_memory_domain == own.shared_memory_domain;
    if (shares || static_cast<int>(other) == rank) near.insert(static_cast<int>(other));
    reachable = reachable && !member.network_address.empty();
  }
  if (near.size() == members.size() || !reachable) return;
  for (size_t other = 0; other < members.size(); ++other) far.insert(static_cast<int>(other));
}

void AssignmentBuilder::World::AppendPeers(const std::set<int>& ranks, std::string Member::*address,
                                           Peers& peers) const {
  absl::string_view previous;
  for (const int rank : ranks) {
    const std::string& text = members[static_cast<size_t>(rank)].*address;
    AppendPeer(rank, text, previous, peers);
    previous = text;
  }
}

namespace {

// Who of the holders of one part gives it to rank `rank` on `own`; nullptr when nobody can.
const PartHolder* ChooseSource(const State& state, const JobRecord& job,
                               const std::vector<PartHolder>& holders, const WorkerState& own,
                               int rank) {
  // Near ones, far ones, and those that somebody lost the link to.
  std::array<std::vector<const PartHolder*>, 3> choices;
  for (const PartHolder& holder : holders) {
    if (!IsAlive(state, holder.worker, holder.incarnation)) continue;
    if (holder.worker == own.id) return &holder;
    const WorkerState& worker = *FindWorker(state, holder.worker);
    if (!Reaches(own, worker)) continue;
    const bool avoided =
        job.excluded.contains(holder.worker) || IsBroken(job, own.id, holder.worker);
    choices[avoided ? 2 : ShareMemory(own, worker) ? 0 : 1].push_back(&holder);
  }
  for (const std::vector<const PartHolder*>& choice : choices) {
    // Many ranks may need the same part: not all of the same process.
    if (!choice.empty()) return choice[static_cast<size_t>(rank) % choice.size()];
  }
  return nullptr;
}

void SetRestore(const State& state, const JobRecord& job, int rank, v1::Assignment& assignment) {
  const RestorePoint& point = job.restore;
  if (!point.version && point.checkpoint.empty()) return;
  v1::RestorePlan& plan = *assignment.mutable_restore();
  plan.set_step(point.step);
  plan.set_checkpoint(point.checkpoint);
  if (!point.version) return;
  plan.set_epoch(point.version->epoch);
  plan.set_world(point.version->world);
  plan.set_secret(SecretOf(job, Epoch(point.version->epoch)));
  const v1::ParallelSpec& held_layout = *LayoutOf(job, point.version->epoch);
  if (job.trials.phase != Trials::Phase::kNone) *plan.mutable_parallel() = held_layout;
  const WorkerState& own = *FindWorker(state, job.ranks[rank].worker);
  const int world = static_cast<int>(job.ranks.size());
  for (const int part : SourceParts(held_layout, job.spec, point.version->world, world, rank)) {
    const auto held = point.parts.find(part);
    if (held == point.parts.end()) continue;
    const PartHolder* source = ChooseSource(state, job, held->second, own, rank);
    if (source == nullptr) continue;
    v1::RestoreSource& named = *plan.add_sources();
    named.set_owner(source->owner);
    named.set_address(AddressFor(own, *FindWorker(state, source->worker)));
  }
}

void SetHolders(const State& state, const JobRecord& job, int rank, v1::Assignment& assignment) {
  const WorkerState& own = *FindWorker(state, job.ranks[rank].worker);
  for (const WorkerId& id : job.ranks[rank].holders) {
    const WorkerState* holder = FindWorker(state, id);
    if (holder != nullptr) assignment.add_holders(AddressFor(own, *holder));
  }
}

}  // namespace

std::string SecretOf(const JobRecord& job, Epoch epoch) {
  return absl::StrCat(job.secret, ":", epoch.value());
}

AssignmentBuilder::AssignmentBuilder() = default;
AssignmentBuilder::~AssignmentBuilder() = default;

v1::Assignment AssignmentBuilder::Build(const State& state, const JobRecord& job, int rank,
                                        const Reported& reported) {
  SHERD_CHECK(rank >= 0 && rank < static_cast<int>(job.ranks.size()));
  if (world_ == nullptr || !world_->IsOf(job)) world_ = std::make_unique<World>(state, job);
  v1::Assignment assignment;
  assignment.set_job_id(job.id.value());
  assignment.set_epoch(job.epoch.value());
  *assignment.mutable_spec() = job.spec;
  assignment.set_rank(rank);
  assignment.set_world(world_->layout.world());
  // What a process of an older epoch knows opens no link of this one.
  assignment.set_secret(SecretOf(job, job.epoch));
  assignment.set_reported_step(reported.step);
  assignment.set_reported_eval_step(reported.eval_step);
  assignment.set_save_and_stop(job.save_and_stop);
  if (job.trials.phase != Trials::Phase::kNone) {
    assignment.set_first_epoch(FirstEpochOf(job).value());
  }
  if (IsUndecided(job)) *assignment.mutable_trial() = TrialOf(job);
  SetRestore(state, job, rank, assignment);
  SetHolders(state, job, rank, assignment);
  const auto stored = world_->stored.find(job.ranks[rank].worker);
  if (stored != world_->stored.end()) {
    assignment.mutable_stored_for()->Add(stored->second.begin(), stored->second.end());
  }
  assignment.set_ranks_on_host(world_->members[static_cast<size_t>(rank)].ranks_on_host);
  std::set<int> peers;
  std::set<int> network_peers;
  for (v1::ProcessGroup& group : world_->layout.GroupsOf(rank)) {
    const GroupTransport transport = world_->TransportOf(group);
    group.set_shares_memory(transport == GroupTransport::kSharedMemory);
    group.set_over_nccl(transport == GroupTransport::kNccl);
    (group.shares_memory() ? peers : network_peers)
        .insert(group.ranks().begin(), group.ranks().end());
    *assignment.add_groups() = std::move(group);
  }
  // A probe times groups of all kinds.
  if (assignment.has_trial() && assignment.trial().steps() == 0) {
    world_->AddAllPeers(rank, peers, network_peers);
  }
  world_->AppendPeers(peers, &World::Member::data_address, *assignment.mutable_peers());
  world_->AppendPeers(network_peers, &World::Member::stream_address,
                      *assignment.mutable_network_peers());
  for (v1::UnitShard& shard : world_->layout.ShardsOf(rank)) {
    *assignment.add_shards() = std::move(shard);
  }
  return assignment;
}

}  // namespace sherd
