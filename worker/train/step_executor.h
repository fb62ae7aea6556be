#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "plan/ledger.h"
#include "worker/model/model.h"
#include "worker/model/tensor_group.h"
#include "worker/train/exchange_record.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/step_commits.h"

namespace sherd {

// Where micro-batches come from. Arrays hold micro_batch × seq_len tokens.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Global micro-batch `index` of `step`, which counts from 1.
  virtual absl::Status ReadTrain(int64_t step, int64_t index, int32_t* inputs,
                                 int32_t* targets) = 0;
  // How many targets all micro-batches of `step` have that are not −1: the same on every rank.
  virtual int64_t TrainTargets(int64_t step) = 0;
  // Evaluation micro-batch `index`; targets beyond the end of the text are −1.
  virtual absl::Status ReadEval(int64_t index, int32_t* inputs, int32_t* targets) = 0;
};

// Figures of a step or an evaluation, equal bits on every rank.
struct StepFigures {
  // Nats a token, over all tokens of all ranks.
  double loss = 0;
  // Global gradient norm before clipping; 0 for an evaluation.
  double grad_norm = 0;
  int64_t tokens = 0;
  // Of a step: some rank wants all to stop after it.
  bool pause = false;
  // Of a step, by rank of the world: seconds that it computed since the exchange before.
  std::vector<double> busy_seconds;
  // Of a step, by rank of the world.
  std::vector<SaveWord> saves;
};

// Seconds of this rank's thread since it was made.
struct PhaseSeconds {
  double data = 0;
  double forward = 0;
  double backward = 0;
  // Waiting for collectives: communication that computation did not hide.
  double exposed = 0;
  double update = 0;

  double busy() const { return data + forward + backward + update; }
};

// Walks step plans: every operation of the plan becomes calls of the model, the communicator and
// the optimizer. Not thread-safe but for Stop and operation.
class StepExecutor {
 public:
  // All arguments are kept and must outlive the executor. `seq_len` and `micro_batch` come from the
  // job. `tensor` is the model's group, null when it has none. `ops`, `meter` and all memory are of
  // `device`.
  StepExecutor(const RankPlan& plan, const v1::JobSpec& spec, Ops& ops, Model& model,
               const TensorGroup* tensor, RankMesh& mesh, RankMemory& memory, StepCommits& commits,
               BatchSource& source, MemoryMeter& meter, Device& device);

  // Trains one step on the samples of `window`, which is its number unless windows were skipped; by
  // its exchange the step before it is committed. What it gathers after its
  // update may still be under way then, and has until the next forward of its unit. kAborted after
  // Stop, kDataLoss when loss or norm is not finite (nothing is updated then, so that the
  // step can be trained again), and what the
  // communicator and the source answer.
  absl::StatusOr<StepFigures> Train(int64_t step, int64_t window);
  absl::StatusOr<StepFigures> Train(int64_t step) { return Train(step, step); }
  // The last step failed, on every rank, because its loss or norm was not finite.
  bool diverged() const { return diverged_; }
  // Walks `plan` over `micro_batches` evaluation micro-batches.
  absl::StatusOr<StepFigures> Evaluate(const StepPlan& plan, int64_t micro_batches);

  // Waits until the last step is stored: for others, where copies of it are on other hosts.
  absl::Status AwaitStored();
  // Waits for what is still under way. Errors of Communicator::Wait.
  absl::Status Settle();
  // Has every rank take all shards of the parameters, where each stores the whole and owns a part:
  // what it owns has changed. To be settled.
  void GatherWholeParameters();

  // Has this rank say, in every exchange from now on, that all should stop. From any thread.
  void RequestPause() { pause_.store(true, std::memory_order_relaxed); }

  // What this rank says in the exchanges from now on. Between two walks.
  void SetSaveWord(const SaveWord& word) { save_ = word; }

  // Makes the current and every later walk return kAborted at its next operation. From any thread.
  void Stop() { stopped_.store(true, std::memory_order_relaxed); }
  // Returns when the communicator touches no memory of the job any more. After its Abort.
  void AwaitQuiet();
  // What was under way last: "backward h.3 round 0".
  std::string operation() const;
  // From any thread: the rank waits for others.
  bool waiting() const {
    return waiting_.load(std::memory_order_relaxed) || (tensor_ != nullptr && tensor_->waiting());
  }
  const PhaseSeconds& phases() const { return phases_; }

 private:
  struct Walk {
    const StepPlan* plan;
    MicroBatches micro_batches;
    int64_t step;  // 0: an evaluation
    int64_t window = 0;
    // Of a step: what each target's loss counts, one over how many there are.
    float loss_scale = 0;
    std::vector<double> losses;
    std::vector<int64_t> tokens;
    StepFigures figures;
    float grad_scale = 1;
  };

  absl::StatusOr<StepFigures> Run(Walk walk);
  absl::Status RunOp(const PlannedOp& op, Walk& walk);
  void Gather(int unit);
  void Free(int unit);
  absl::Status Forward(const PlannedOp& op, Walk& walk);
  absl::Status Backward(const PlannedOp& op, Walk& walk);
  void ReduceScatter(const PlannedOp& op, const Walk& walk);
  // Starts summing the unit's shard over the replicas; waits for it to be whole in this one.
  absl::Status ReduceReplicas(const PlannedOp& op, const Walk& walk);
  // Sums the unit's gradients of which members of the tensor-parallel group have shares.
  absl::Status ReduceShares(const PlannedOp& op);
  void Accumulate(const PlannedOp& op, const Walk& walk);
  // Sums whole gradients of a bucket of units, on every rank or each shard on its owner.
  void ReduceBucket(const PlannedOp& op, const Walk& walk);
  absl::Status ExchangeFigures(const PlannedOp& op, Walk& walk);
  absl::Status ExchangeRecords(const ExchangeRecord& mine, std::vector<ExchangeRecord>& all);
  void Update(int unit, const Walk& walk);
  // Updates a part of one segment of a unit, whose state lies there.
  using PartUpdate = absl::FunctionRef<void(const UpdateSegment& part, const AdamWState& from,
                                            const AdamWState& to)>;
  // Where the state is offloaded.
  void UpdateThroughRing(const UnitMemory& memory, PartUpdate update);
  // Has the version that the update makes hold what is frozen, too.
  void KeepState(const UnitMemory& memory, const UpdateSegment& segment);

  // Runs a part of the model, whose seconds are those of `phase` but for what it waits for its
  // tensor-parallel group, and answers that group's error, after which the model holds garbage.
  absl::Status Compute(double& phase, absl::FunctionRef<void()> part);
  absl::Status ReadMicroBatch(const Walk& walk, int64_t round);
  absl::Status PrepareGradients(int unit);
  // Waits for an operation among those that share the rank's shards, or another communicator's.
  absl::Status WaitFor(Ticket& ticket);
  absl::Status WaitFor(Communicator& comm, Ticket& ticket);
  // The same error on every rank, none of which ends before all have it.
  absl::Status Diverge(const Walk& walk);
  absl::Status FinishReductions();
  // The summed gradients of what this rank owns of a unit.
  std::byte* Gradients(int unit);
  // What the host reads of a unit's whole gradients.
  const std::byte* GradientsOnHost(int unit);
  // Adds a unit's whole gradients, as a backward has left them, to its tree.
  void FoldOwn(int unit);
  // A tree's sum, where it comes about; and brought to a place of the device.
  void* SumOf(TreeAccumulator& tree);
  void BringSum(TreeAccumulator& tree, std::byte* to, int64_t elements);
  ExactSum CountedSquares();

  const RankPlan& plan_;
  const v1::JobSpec& spec_;
  const int rank_;  // in the data-parallel group
  const int head_;
  Ops& ops_;
  Model& model_;
  const TensorGroup* const tensor_;
  RankMesh& mesh_;
  Communicator& comm_;  // among those that share the rank's shards
  RankMemory& memory_;
  StepCommits& commits_;
  BatchSource& source_;
  Device& device_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> pause_{false};
  std::atomic<bool> waiting_{false};

  MicroBatch batch_;
  Buffer inputs_;
  Buffer targets_;
  // Of a device with memory of its own: inputs, then targets; and a unit's gradients on the host.
  Buffer device_batch_;
  Buffer leaf_;
  std::vector<UnitParams> params_;
  std::vector<Ticket> gathers_;  // by unit; 0: nothing to wait for
  std::vector<UnitGrads> grads_;
  std::vector<GradientSlot*> slots_;  // by unit; nullptr: no buffer taken in this round
  std::vector<Ticket> reductions_;
  std::vector<Ticket> unit_reductions_;     // by unit: its last reduce-scatter
  std::vector<Ticket> replica_reductions_;  // on the mesh's replicas
  std::vector<bool> landed_;                // by unit: its sum has been brought from the host
  int64_t current_round_ = -1;
  bool has_micro_batch_ = false;
  std::atomic<const PlannedOp*> current_{nullptr};
  PhaseSeconds phases_;
  bool diverged_ = false;
  SaveWord save_;
  double busy_told_ = 0;  // of phases_, what exchanges have told
};

}  // namespace sherd
