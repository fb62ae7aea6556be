#include "tests/worker/train/local_world.h"

#include <filesystem>
#include <random>
#include <thread>
#include <utility>

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

LocalWorker::LocalWorker() : listener(*DataListener::Bind()), server(*listener, holdings) {}

LocalWorkers MakeWorkers(int count) {
  LocalWorkers workers;
  for (int i = 0; i < count; ++i) workers.push_back(std::make_shared<LocalWorker>());
  return workers;
}

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

// Who holds the part, by the rank of the version's epoch whose it is.
void AddSource(const v1::JobSpec& spec, const LocalEpoch& epoch, int part, v1::RestorePlan& plan) {
  for (const std::shared_ptr<LocalWorker>& holder : epoch.holders) {
    for (int owner = 0; owner < epoch.restore.world; ++owner) {
      if (PartOf(spec, epoch.restore.world, owner) != part) continue;
      const HoldingKey key{"j-1", epoch.restore.epoch, epoch.restore.world, owner};
      const std::shared_ptr<HoldingSegment> segment = holder->holdings.Find(key);
      if (segment == nullptr || segment->FindStep(epoch.restore.step) < 0) continue;
      v1::RestoreSource& source = *plan.add_sources();
      source.set_owner(owner);
      source.set_address(holder->listener->address());
      return;
    }
  }
}

v1::RestorePlan RestoreOf(const v1::JobSpec& spec, int world, int rank, const LocalEpoch& epoch) {
  v1::RestorePlan plan;
  plan.set_epoch(epoch.restore.epoch);
  plan.set_world(epoch.restore.world);
  plan.set_step(epoch.restore.step);
  for (const int part : SourceParts(spec, epoch.restore.world, world, rank)) {
    AddSource(spec, epoch, part, plan);
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
  assignment.set_secret("secret of the epoch");
  assignment.set_reported_step(epoch.reported_step);
  assignment.set_save_and_stop(epoch.save_and_stop);
  assignment.set_reported_eval_step(epoch.reported_eval_step);
  AppendAddresses(workers_, &DataListener::address, *assignment.mutable_peers());
  AppendAddresses(workers_, &DataListener::network_address, *assignment.mutable_network_peers());
  TrainerOptions options;
  options.threads = epoch.threads;
  options.files = epoch.files;
  const WorldLayout layout(spec, world);
  for (int rank = 0; rank < world; ++rank) {
    assignment.set_rank(rank);
    assignment.clear_groups();
    for (v1::ProcessGroup& group : layout.GroupsOf(rank)) {
      group.set_shares_memory(epoch.over_tcp.count(group.kind()) == 0);
      *assignment.add_groups() = std::move(group);
    }
    assignment.clear_shards();
    for (v1::UnitShard& shard : layout.ShardsOf(rank)) *assignment.add_shards() = std::move(shard);
    assignment.clear_holders();
    if (world > 1) {
      assignment.add_holders(
          workers_[static_cast<size_t>((rank + 1) % world)]->listener->address());
    }
    if (!epoch.checkpoint.empty()) {
      assignment.mutable_restore()->set_checkpoint(epoch.checkpoint);
      assignment.mutable_restore()->set_step(epoch.restore.step);
    } else if (epoch.restore.step > 0) {
      *assignment.mutable_restore() = RestoreOf(spec, world, rank, epoch);
    }
    LocalWorker& worker = *workers_[static_cast<size_t>(rank)];
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->trainer =
        Trainer::Make(assignment, options, *worker.listener, worker.holdings, registry_);
  }
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
