#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "prometheus/registry.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"
#include "worker/train/trainer.h"

namespace sherd::testing {

// What one rank told during a run.
struct RankRecord {
  TrainResult result;
  bool ready = false;
  std::vector<v1::StepReport> steps;
  std::vector<v1::EvalReport> evals;
  std::vector<v1::RankLedger> ledgers;
};

// English-like text of about `bytes` bytes, a pure function of its arguments.
std::string MakeText(int64_t bytes, uint64_t seed);

// A tiny job: 2 blocks of 32 channels, sequences of 16 bytes, `micro_batches` micro-batches of one
// sequence.
v1::JobSpec TinyJob(const std::string& text_path, absl::string_view strategy, v1::DataType type,
                    int64_t micro_batches, int64_t steps);

// Ranks of one job as threads of this process, over real data links.
class LocalWorld {
 public:
  // Groups of the kinds in `over_tcp` have members that share no memory.
  LocalWorld(const v1::JobSpec& spec, int world, int threads = 1,
             const std::set<v1::GroupKind>& over_tcp = {});
  ~LocalWorld();

  // Runs all ranks to their end.
  std::vector<RankRecord> Run();
  // Starts them; Join waits.
  void Start();
  std::vector<RankRecord> Join();
  Trainer& trainer(int rank);
  // Blocks until `rank` has completed `step` steps or has ended.
  void WaitForStep(int rank, int64_t step);
  const prometheus::Registry& registry() const { return registry_; }

 private:
  struct Rank;
  prometheus::Registry registry_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace sherd::testing
