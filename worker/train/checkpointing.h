#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/memory.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/checkpoint/cancellable_file_system.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"
#include "worker/train/exchange_record.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/trainer.h"

namespace sherd {

// Where a job's checkpoints lie, and what is alike in all of them.
struct CheckpointPlace {
  // checkpoint.dir, resolved.
  std::string root;
  // Of rank 0.
  std::string lineage;
  int64_t corpus_tokens = 0;
};

// What training has come to.
struct TrainedState {
  int64_t step = 0;
  // Of the step; NaN: unknown.
  double loss = 0;
  int64_t skipped_windows = 0;
};

// Saves a rank's part of the job's checkpoints beside training: Begin copies what the rank answers
// for, and a thread of its own writes the copy. That it is written, or not, the ranks tell each
// other in the exchanges of the steps that follow, of which the first also commits the step that is
// saved; then rank 0's thread publishes the checkpoint, or gives it up when a part is missing, and
// tells the observer. At most one save is under way, on all ranks the same. A failure ends no
// training. Calls come from the trainer's thread but for Cancel.
class Checkpointing {
 public:
  // All references outlive this. Takes SnapshotBytes(plan) of memory if the job saves now and then.
  Checkpointing(const v1::Assignment& assignment, const RankPlan& plan, FileSystem& files,
                RankMemory& memory, MemoryMeter& meter, TrainObserver& observer);
  // As End.
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;

  // Before anything is saved.
  void SetPlace(CheckpointPlace place) { place_ = std::move(place); }
  bool IsDueAfter(int64_t step) const;
  // Copies the state; on return it may be updated. Leaves a save out, and says so, when the one
  // before it is still under way.
  void Begin(const TrainedState& state);
  // What this rank has to say in the next exchange, and what all have said in one.
  SaveWord word() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Hear(absl::Span<const SaveWord> words) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for what is under way, with all ranks. Errors of the mesh alone.
  absl::Status Finish(RankMesh& mesh) ABSL_LOCKS_EXCLUDED(mutex_);
  // Saves the state as it is, without a copy, with all ranks, and tells of it. The same error on
  // all ranks (worker/train/vote.h).
  absl::Status SaveNow(const TrainedState& state, RankMesh& mesh);

  // From any thread: what is under way, and all that follows, fails within the time of one call to
  // the operating system.
  void Cancel() { files_.Cancel(); }
  // From any thread: what was done to files so far, which tells whether a save moves.
  int64_t file_operations() const { return files_.operations(); }
  // Gives up what is under way and tells of what is done. Nothing else may be called after.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Task { kWrite, kPublish, kDiscard };
  using Clock = std::chrono::steady_clock;

  bool leads() const { return assignment_.rank() == 0; }
  CheckpointInfo InfoOf(const TrainedState& state) const;
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  void Start(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitIdle() ABSL_LOCKS_EXCLUDED(mutex_);
  void Write() ABSL_LOCKS_EXCLUDED(mutex_);
  void Settle(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status own_part() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PublishNow();
  void GiveUpNow(const v1::CheckpointReport& report);
  // Publishes, and removes what is not kept any more.
  v1::CheckpointReport Publish();
  v1::CheckpointReport ReportOf(const absl::Status& error) const;
  // Has the observer know of what the other thread has done.
  void Tell() ABSL_LOCKS_EXCLUDED(mutex_);

  const v1::Assignment& assignment_;
  const RankPlan& plan_;
  FileSystem& real_files_;
  CancellableFileSystem files_;
  RankMemory& memory_;
  TrainObserver& observer_;
  CheckpointPlace place_;
  Buffer snapshot_;
  std::vector<TensorRange> ranges_;  // of the snapshot

  // What is being saved. The other thread reads it while it is busy.
  std::optional<CheckpointInfo> saving_;
  Clock::time_point begun_;
  absl::Status failure_;   // of the first rank that has failed
  bool settling_ = false;  // rank 0 publishes or gives up

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Task> task_ ABSL_GUARDED_BY(mutex_);
  SaveWord word_ ABSL_GUARDED_BY(mutex_);
  absl::Status part_ ABSL_GUARDED_BY(mutex_);  // what became of this rank's
  bool part_told_ ABSL_GUARDED_BY(mutex_) = true;
  std::optional<v1::CheckpointReport> report_ ABSL_GUARDED_BY(mutex_);
  std::string remark_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sherd
