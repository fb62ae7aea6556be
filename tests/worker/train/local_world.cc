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
  spec.mutable_checkpoint()->set_dir(
      (std::filesystem::path(text_path).parent_path() / "weights").string());
  SHERD_CHECK(ValidateJobSpec(spec).fields_size() == 0);
  return spec;
}

struct LocalWorld::Rank final : TrainObserver {
  std::unique_ptr<DataListener> listener;
  std::unique_ptr<Trainer> trainer;
  std::thread thread;
  RankRecord record;
  absl::Mutex mutex;
  int64_t steps ABSL_GUARDED_BY(mutex) = 0;

  void OnReady() override { record.ready = true; }
  void OnStep(const v1::StepReport& report) override {
    record.steps.push_back(report);
    absl::MutexLock lock(&mutex);
    steps = report.step();
  }
  void OnEval(const v1::EvalReport& report) override { record.evals.push_back(report); }
  void OnLedger(const v1::RankLedger& ledger) override { record.ledgers.push_back(ledger); }
  void OnLog(absl::string_view) override {}
};

LocalWorld::LocalWorld(const v1::JobSpec& spec, int world, int threads,
                       const std::set<v1::GroupKind>& over_tcp) {
  v1::Assignment assignment;
  assignment.set_job_id("j-1");
  assignment.set_epoch(1);
  *assignment.mutable_spec() = spec;
  assignment.set_world(world);
  assignment.set_ranks_on_host(world);
  assignment.set_secret("secret of the epoch");
  for (int rank = 0; rank < world; ++rank) {
    ranks_.push_back(std::make_unique<Rank>());
    absl::StatusOr<std::unique_ptr<DataListener>> listener = DataListener::Bind();
    SHERD_CHECK(listener.ok());
    ranks_.back()->listener = *std::move(listener);
    const auto append = [&](const auto& address_of, Peers& peers) {
      const std::string previous =
          rank == 0 ? "" : address_of(*ranks_[static_cast<size_t>(rank) - 1]->listener);
      AppendPeer(rank, address_of(*ranks_.back()->listener), previous, peers);
    };
    append([](const DataListener& listener) { return listener.address(); },
           *assignment.mutable_peers());
    append([](const DataListener& listener) { return listener.network_address(); },
           *assignment.mutable_network_peers());
  }
  TrainerOptions options;
  options.threads = threads;
  const WorldLayout layout(spec, world);
  for (int rank = 0; rank < world; ++rank) {
    assignment.set_rank(rank);
    assignment.clear_groups();
    for (v1::ProcessGroup& group : layout.GroupsOf(rank)) {
      group.set_shares_memory(over_tcp.count(group.kind()) == 0);
      *assignment.add_groups() = std::move(group);
    }
    assignment.clear_shards();
    for (v1::UnitShard& shard : layout.ShardsOf(rank)) *assignment.add_shards() = std::move(shard);
    Rank& each = *ranks_[static_cast<size_t>(rank)];
    each.trainer = Trainer::Make(assignment, options, *each.listener, registry_);
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
