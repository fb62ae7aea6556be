#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plan/holdings.h"
#include "prometheus/registry.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/holding_store.h"
#include "worker/train/trainer.h"

namespace sherd {
class NcclApi;
}  // namespace sherd

namespace sherd::testing {

// What one rank told during a run.
struct RankRecord {
  TrainResult result;
  bool ready = false;
  int32_t copies = 0;
  // Training went on after this one, it said.
  int64_t ready_step = -1;
  std::vector<v1::StepReport> steps;
  std::vector<v1::EvalReport> evals;
  std::vector<v1::RankLedger> ledgers;
  std::vector<v1::Warning> warnings;
  std::vector<v1::CheckpointReport> checkpoints;
  std::vector<std::string> log;
};

// English-like text of about `bytes` bytes, a pure function of its arguments.
std::string MakeText(int64_t bytes, uint64_t seed);

// A tiny job: 2 blocks of 32 channels, sequences of 16 bytes, `micro_batches` micro-batches of one
// sequence.
v1::JobSpec TinyJob(const std::string& text_path, absl::string_view strategy, v1::DataType type,
                    int64_t micro_batches, int64_t steps);

// What of a worker's process outlives its trainers. Workers of different hosts share no memory.
struct LocalWorker {
  explicit LocalWorker(int host = 0);
  const int host;
  std::unique_ptr<DataListener> listener;
  HoldingStore holdings;
  std::unique_ptr<HoldingServer> server;
};
using LocalWorkers = std::vector<std::shared_ptr<LocalWorker>>;
// The first of them on host 0, and as many on each.
LocalWorkers MakeWorkers(int count, int hosts = 1);

// An epoch of a job as the coordinator would plan it.
struct LocalEpoch {
  int threads = 1;
  // Groups of these kinds have members that share no memory.
  std::set<v1::GroupKind> over_tcp = {};
  int64_t epoch = 1;
  // By rank; new ones if there are none.
  LocalWorkers workers = {};
  // Step 0: from the start. The first of `holders` that has a part is read from.
  Version restore = {};
  LocalWorkers holders = {};
  int64_t reported_step = 0;
  int64_t reported_eval_step = 0;
  // Instead of a version.
  std::string checkpoint = {};
  bool save_and_stop = false;
  // By rank: who holds its shard, if not as usual.
  std::map<int, std::string> holders_of = {};
  // Null: the real one.
  FileSystem* files = nullptr;
  RetryTimes full_disk = {absl::Milliseconds(1), absl::Milliseconds(4), 6};
  // Nothing is trained for good.
  std::optional<v1::Trial> trial = {};
  // How the version to restore is cut, if not as the job is now.
  std::optional<v1::ParallelSpec> restore_layout = {};
  // By rank: what computes; none: the processor. They outlive the world.
  std::vector<Accelerator*> accelerators = {};
  // By which groups are formed, but for those of the kinds that share no memory; outlives the
  // world. Null: none are.
  NcclApi* nccl = nullptr;
};

// What an epoch's workers know.
std::string SecretOf(int64_t epoch);

// Ranks of one epoch of a job as threads of this process, over real data links. Each rank's shard
// is held by its own worker and that of the next rank, of the next one on another host if there is
// one. Groups over several hosts exchange data over TCP.
class LocalWorld {
 public:
  LocalWorld(const v1::JobSpec& spec, int world, int threads = 1,
             const std::set<v1::GroupKind>& over_tcp = {});
  LocalWorld(const v1::JobSpec& spec, int world, LocalEpoch epoch);
  ~LocalWorld();

  // Runs all ranks to their end.
  std::vector<RankRecord> Run();
  // Starts them; Join waits.
  void Start();
  std::vector<RankRecord> Join();
  Trainer& trainer(int rank);
  const LocalWorkers& workers() const { return workers_; }
  // Blocks until `rank` has completed `step` steps or has ended.
  void WaitForStep(int rank, int64_t step);
  const prometheus::Registry& registry() const { return registry_; }

 private:
  struct Rank;
  void Make(const v1::JobSpec& spec, int world, const LocalEpoch& epoch);
  // Of the assignment's rank, and has its worker store what it is to.
  void SetHolders(const LocalEpoch& epoch, LocalWorker& worker, v1::Assignment& assignment) const;

  prometheus::Registry registry_;
  LocalWorkers workers_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace sherd::testing
