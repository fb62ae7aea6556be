#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "prometheus/registry.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/layout.pb.h"
#include "sherd/v1/worker.pb.h"
#include "worker/checkpoint/file_system.h"
#include "worker/comm/data_link.h"
#include "worker/holdings/holding_store.h"

namespace sherd {

class NcclApi;

// Hears what a rank does; called on the trainer's thread, never under a lock. Must not block.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnReady(const v1::RankReady& ready) = 0;
  // Rank 0 reports steps, each when it is committed, and evaluations; every rank its ledger.
  virtual void OnStep(const v1::StepReport& report) = 0;
  virtual void OnEval(const v1::EvalReport& report) = 0;
  virtual void OnLedger(const v1::RankLedger& ledger) = 0;
  virtual void OnLog(absl::string_view text) = 0;
  virtual void OnWarning(const v1::Warning& warning) = 0;
  // Of rank 0: a checkpoint is published, or its `error` says why it is not.
  virtual void OnCheckpoint(const v1::CheckpointReport& checkpoint) = 0;
};

// How a rank's work ended.
struct TrainResult {
  absl::Status status;
  // Of OK: all ranks have stopped together before the end, as asked by Pause.
  bool paused = false;
  // Of an error: another attempt would fail in the same way.
  bool final = false;
  // The last committed step.
  int64_t step = 0;
  // What was under way: "step 12, h.3, reduce_scatter".
  std::string operation;
  // The rank that went away, failed or aborted, when that is why; -1 else.
  int lost_peer = -1;
  // The address of the process that was not reached, to store the shard or to give a part of what
  // is restored, when that is why; "" else.
  std::string lost_holder;
  // On rank 0 of a finished job: its checkpoint.dir.
  std::string weights_path;
  // Of a finished job: the reports of its last steps, in order, as far as they may not have been
  // told.
  std::vector<v1::StepReport> last_steps = {};
  // Of an assignment that only measures, when that is done: nothing of it is left but the figures.
  std::optional<v1::TrialReport> trial = {};
};

// Attempts after the first that failed: before each is waited, twice as long each time.
struct RetryTimes {
  absl::Duration first = absl::Seconds(1);
  absl::Duration longest = absl::Seconds(32);
  int retries = 23;
};

struct TrainerOptions {
  std::string data_root;    // "" : any path
  std::string output_root;  // "" : any path
  int threads = 1;          // compute threads of this rank
  // Computes instead of these; outlives the trainer, and serves one at a time. Null: none.
  Accelerator* accelerator = nullptr;
  // By which it forms groups with other GPUs; outlives the trainer. Null: none.
  NcclApi* nccl = nullptr;
  // What outlives the job is written with these, which outlive the trainer; null: with the real
  // ones.
  FileSystem* files = nullptr;
  // When the weights of a finished job find no room: ten minutes in all.
  RetryTimes full_disk = {};
};

// Where a rank's trainer is.
struct TrainPosition {
  // The last completed step.
  int64_t step = 0;
  std::string operation;
  // In a collective: it waits for others, and for which ranks if it can tell.
  bool waiting = false;
  std::vector<int> missing = {};
  // That it has copied and restored so far; it grows while that goes on.
  int64_t copied_bytes = 0;
};

// One rank of one epoch of a job, from forming its groups to writing its weights. Nothing of it is
// left when it is destroyed: memory, threads, descriptors, segments; but for the versions of its
// shard in `holdings`.
class Trainer {
 public:
  static std::unique_ptr<Trainer> Make(const v1::Assignment& assignment,
                                       const TrainerOptions& options, DataListener& listener,
                                       HoldingStore& holdings, prometheus::Registry& metrics);
  virtual ~Trainer() = default;
  // Blocks until the job is done, fails or is aborted. Call once.
  virtual TrainResult Run(TrainObserver& observer) = 0;
  // From any thread, also before and after Run: Run returns kAborted, within 500 ms where it waits
  // and else at the next operation of the step plan (a unit's forward or backward).
  virtual void Abort(absl::string_view reason) = 0;
  // From any thread: Run returns OK, paused, when this and all other ranks have stored and
  // committed a step, the next one if possible.
  virtual void Pause() = 0;
  // From any thread.
  virtual TrainPosition Position() = 0;
};

// Looks at a job's files as InspectData asks (worker.proto). OK, or one sentence that names the
// file and what would be right.
absl::Status InspectJobFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                             int64_t seq_len, int64_t vocab, const TrainerOptions& options);

}  // namespace sherd
