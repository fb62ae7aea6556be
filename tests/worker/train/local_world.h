#pragma once

#include <memory>
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

// What of a worker's process outlives its trainers.
struct LocalWorker {
  LocalWorker();
  std::unique_ptr<DataListener> listener;
  HoldingStore holdings;
  HoldingServer server;
};
using LocalWorkers = std::vector<std::shared_ptr<LocalWorker>>;
LocalWorkers MakeWorkers(int count);

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
  // Null: the real one.
  FileSystem* files = nullptr;
};

// Ranks of one epoch of a job as threads of this process, over real data links. Each rank's shard
// is held by its own worker and the next rank's.
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

  prometheus::Registry registry_;
  LocalWorkers workers_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace sherd::testing
