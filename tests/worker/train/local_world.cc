#include "tests/worker/train/local_world.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "plan/job_spec.h"
#include "plan/peer_addresses.h"
#include "plan/world_layout.h"
#include "tests/support/jobs.h"

namespace sherd::testing {

std::string MakeText(int64_t bytes, uint64_t seed) {
  static constexpr const char* kWords[] = {"the ",  "shard ",     "of ", "a ",    "model ",
                                           "is ",   "kept ",      "by ", "rank ", "and ",
                                           "then ", "gathered. ", "\n"};
  std::mt19937_64 random(seed);
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) text += kWords[random() % std::size(kWords)];
  text.resize(static_cast<size_t>(bytes));
  return text;
}

v1::JobSpec TinyJob(const std::string& text_path, absl::string_view strategy, v1::DataType type,
                    int64_t micro_batches, int64_t steps) {
  const JobShape shape{
      .layers = 2, .hidden = 32, .ffn = 56, .context = 20, .micro_batch = 1, .steps = steps};
  v1::JobSpec spec = MakeJob(strategy, type, micro_batches, shape, text_path);
  v1::TrainSpec& train = *spec.mutable_train();
  train.set_seq_len(16);
  train.set_seed(11);
  train.mutable_optimizer()->set_lr(3e-3);
  train.mutable_schedule()->set_warmup(std::min<int64_t>(5, steps));
  spec.mutable_elastic()->set_replicas(1);
  spec.mutable_checkpoint()->set_dir(
      (std::filesystem::path(text_path).parent_path() / "weights").string());
  SHERD_CHECK(ValidateJobSpec(spec).fields_size() == 0);
  return spec;
}

struct LocalWorld::Rank final : TrainObserver {
  std::unique_ptr<Trainer> trainer;
  std::thread thread;
  RankRecord record;
  absl::Mutex mutex;
  int64_t steps ABSL_GUARDED_BY(mutex) = 0;

  void OnReady(const v1::RankReady& ready) override {
    record.ready = true;
    record.copies = ready.copies();
    record.ready_step = ready.step();
  }
  void OnStep(const v1::StepReport& report) override {
    record.steps.push_back(report);
    absl::MutexLock lock(&mutex);
    steps = report.step();
  }
  void OnEval(const v1::EvalReport& report) override { record.evals.push_back(report); }
  void OnLedger(const v1::RankLedger& ledger) override { record.ledgers.push_back(ledger); }
  void OnLog(absl::string_view text) override { record.log.emplace_back(text); }
  void OnCheckpoint(const v1::CheckpointReport& checkpoint) override {
    record.checkpoints.push_back(checkpoint);
  }
  void OnWarning(const v1::Warning& warning) override { record.warnings.push_back(warning); }
};

LocalWorker::LocalWorker(int on_host)
    : host(on_host),
      listener(*DataListener::Bind()),
      server(*HoldingServer::Start(*listener, holdings)) {}

LocalWorkers MakeWorkers(int count, int hosts) {
  LocalWorkers workers;
  for (int i = 0; i < count; ++i) {
    workers.push_back(std::make_shared<LocalWorker>(i * hosts / count));
  }
  return workers;
}

std::string SecretOf(int64_t epoch) { return absl::StrCat("secret of epoch ", epoch); }

namespace {

void AppendAddresses(const LocalWorkers& workers, std::string (DataListener::*address)() const,
                     Peers& peers) {
  std::string previous;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const std::string own = ((*workers[rank]->listener).*address)();
    AppendPeer(static_cast<int>(rank), own, previous, peers);
    previous = own;
  }
}

// Where `from` comes to `to`.
std::string AddressOf(const LocalWorker& from, const LocalWorker& to) {
  return from.host == to.host ? to.listener->address() : to.listener->network_address();
}

bool OnOneHost(const v1::ProcessGroup& group, const LocalWorkers& workers) {
  const int host = workers[static_cast<size_t>(group.ranks(0))]->host;
  return std::all_of(group.ranks().begin(), group.ranks().end(),
                     [&](int rank) { return workers[static_cast<size_t>(rank)]->host == host; });
}

// The rank that holds another's shard.
int HolderOf(int rank, const LocalWorkers& workers) {
  const int world = static_cast<int>(workers.size());
  for (int step = 1; step < world; ++step) {
    const int other = (rank + step) % world;
    if (workers[static_cast<size_t>(other)]->host != workers[static_cast<size_t>(rank)]->host) {
      return other;
    }
  }
  return (rank + 1) % world;
}

// Tells the rank's worker whose shards it is to store.
void TellToHold(LocalWorker& worker, const v1::Assignment& assignment) {
  v1::Hold hold;
  hold.set_job_id(assignment.job_id());
  hold.set_epoch(assignment.epoch());
  hold.set_world(assignment.world());
  *hold.mutable_owners() = assignment.stored_for();
  hold.set_secret(assignment.secret());
  worker.holdings.Expect(hold);
}

// Who holds the part, by the rank of the version's epoch whose it is.
void AddSource(const v1::ParallelSpec& held, const LocalEpoch& epoch, const LocalWorker& reader,
               int part, v1::RestorePlan& plan) {
  for (const std::shared_ptr<LocalWorker>& holder : epoch.holders) {
    for (int owner = 0; owner < epoch.restore.world; ++owner) {
      if (PartOf(held, epoch.restore.world, owner) != part) continue;
      const HoldingKey key{"j-1", epoch.restore.epoch, epoch.restore.world, owner};
      const std::shared_ptr<HoldingSegment> segment = holder->holdings.Find(key);
      if (segment == nullptr || segment->FindStep(epoch.restore.step) < 0) continue;
      v1::RestoreSource& source = *plan.add_sources();
      source.set_owner(owner);
      source.set_address(AddressOf(reader, *holder));
      return;
    }
  }
}

v1::RestorePlan RestoreOf(const v1::JobSpec& spec, int world, int rank, const LocalWorker& reader,
                          const LocalEpoch& epoch) {
  v1::RestorePlan plan;
  plan.set_epoch(epoch.restore.epoch);
  plan.set_world(epoch.restore.world);
  plan.set_step(epoch.restore.step);
  plan.set_secret(SecretOf(epoch.restore.epoch));
  const v1::ParallelSpec& held = epoch.restore_layout ? *epoch.restore_layout : spec.parallel();
  if (epoch.restore_layout) *plan.mutable_parallel() = held;
  for (const int part : SourceParts(held, spec, epoch.restore.world, world, rank)) {
    AddSource(held, epoch, reader, part, plan);
  }
  return plan;
}

}  // namespace

LocalWorld::LocalWorld(const v1::JobSpec& spec, int world, int threads,
                       const std::set<v1::GroupKind>& over_tcp)
    : LocalWorld(spec, world, LocalEpoch{.threads = threads, .over_tcp = over_tcp}) {}

LocalWorld::LocalWorld(const v1::JobSpec& spec, int world, LocalEpoch epoch)
    : workers_(epoch.workers.empty() ? MakeWorkers(world) : std::move(epoch.workers)) {
  Make(spec, world, epoch);
}

void LocalWorld::Make(const v1::JobSpec& spec, int world, const LocalEpoch& epoch) {
  v1::Assignment assignment;
  assignment.set_job_id("j-1");
  assignment.set_epoch(epoch.epoch);
  *assignment.mutable_spec() = spec;
  assignment.set_world(world);
  assignment.set_ranks_on_host(world);
  assignment.set_secret(SecretOf(epoch.epoch));
  assignment.set_reported_step(epoch.reported_step);
  assignment.set_save_and_stop(epoch.save_and_stop);
  assignment.set_reported_eval_step(epoch.reported_eval_step);
  if (epoch.trial) *assignment.mutable_trial() = *epoch.trial;
  AppendAddresses(workers_, &DataListener::address, *assignment.mutable_peers());
  AppendAddresses(workers_, &DataListener::network_address, *assignment.mutable_network_peers());
  TrainerOptions options;
  options.threads = epoch.threads;
  options.files = epoch.files;
  options.full_disk = epoch.full_disk;
  options.nccl = epoch.nccl;
  const WorldLayout layout(spec, world);
  for (int rank = 0; rank < world; ++rank) {
    assignment.set_rank(rank);
    assignment.clear_groups();
    for (v1::ProcessGroup& group : layout.GroupsOf(rank)) {
      const bool over_tcp = epoch.over_tcp.count(group.kind()) > 0;
      group.set_over_nccl(epoch.nccl != nullptr && !over_tcp);
      group.set_shares_memory(!group.over_nccl() && !over_tcp && OnOneHost(group, workers_));
      *assignment.add_groups() = std::move(group);
    }
    assignment.clear_shards();
    for (v1::UnitShard& shard : layout.ShardsOf(rank)) *assignment.add_shards() = std::move(shard);
    LocalWorker& worker = *workers_[static_cast<size_t>(rank)];
    SetHolders(epoch, worker, assignment);
    if (!epoch.checkpoint.empty()) {
      assignment.mutable_restore()->set_checkpoint(epoch.checkpoint);
      assignment.mutable_restore()->set_step(epoch.restore.step);
    } else if (epoch.restore.step > 0) {
      *assignment.mutable_restore() = RestoreOf(spec, world, rank, worker, epoch);
    }
    if (!epoch.accelerators.empty()) {
      options.accelerator = epoch.accelerators[static_cast<size_t>(rank)];
    }
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->trainer =
        Trainer::Make(assignment, options, *worker.listener, worker.holdings, registry_);
  }
}

void LocalWorld::SetHolders(const LocalEpoch& epoch, LocalWorker& worker,
                            v1::Assignment& assignment) const {
  assignment.clear_holders();
  assignment.clear_stored_for();
  if (const auto set = epoch.holders_of.find(assignment.rank()); set != epoch.holders_of.end()) {
    assignment.add_holders(set->second);
  } else if (assignment.world() > 1) {
    const int holder = HolderOf(assignment.rank(), workers_);
    assignment.add_holders(AddressOf(worker, *workers_[static_cast<size_t>(holder)]));
  }
  for (int owner = 0; owner < assignment.world(); ++owner) {
    const bool here = assignment.world() > 1 && epoch.holders_of.count(owner) == 0 &&
                      HolderOf(owner, workers_) == assignment.rank() &&
                      workers_[static_cast<size_t>(owner)]->host != worker.host;
    if (here) assignment.add_stored_for(owner);
  }
  if (assignment.stored_for_size() > 0) TellToHold(worker, assignment);
}

LocalWorld::~LocalWorld() = default;

void LocalWorld::Start() {
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    rank->thread = std::thread([&each = *rank] {
      each.record.result = each.trainer->Run(each);
      absl::MutexLock lock(&each.mutex);
      each.steps = INT64_MAX;
    });
  }
}

std::vector<RankRecord> LocalWorld::Join() {
  std::vector<RankRecord> records;
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    rank->thread.join();
    rank->trainer.reset();
    records.push_back(std::move(rank->record));
  }
  return records;
}

std::vector<RankRecord> LocalWorld::Run() {
  Start();
  return Join();
}

Trainer& LocalWorld::trainer(int rank) { return *ranks_[static_cast<size_t>(rank)]->trainer; }

void LocalWorld::WaitForStep(int rank, int64_t step) {
  Rank& each = *ranks_[static_cast<size_t>(rank)];
  const auto reached = [&] {
    each.mutex.AssertReaderHeld();
    return each.steps >= step;
  };
  absl::MutexLock lock(&each.mutex, absl::Condition(&reached));
}

}  // namespace sherd::testing
