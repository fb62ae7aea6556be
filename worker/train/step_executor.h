#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory.h"
#include "plan/ledger.h"
#include "worker/model/model.h"
#include "worker/train/exchange_record.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// Where micro-batches come from. Arrays hold micro_batch × seq_len tokens.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Global micro-batch `index` of `step`, which counts from 1.
  virtual absl::Status ReadTrain(int64_t step, int64_t index, int32_t* inputs,
                                 int32_t* targets) = 0;
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
};

// Seconds of this rank's thread since it was made.
struct PhaseSeconds {
  double data = 0;
  double forward = 0;
  double backward = 0;
  // Waiting for collectives: communication that computation did not hide.
  double exposed = 0;
  double update = 0;
};

// Walks step plans: every operation of the plan becomes calls of the model, the communicator and
// the optimizer. Not thread-safe but for Stop and operation.
class StepExecutor {
 public:
  // All arguments are kept and must outlive the executor. `seq_len` and `micro_batch` come from the
  // job.
  StepExecutor(const RankPlan& plan, const v1::JobSpec& spec, Ops& ops, Model& model,
               RankMesh& mesh, RankMemory& memory, BatchSource& source, MemoryMeter& meter);

  // Trains one step. kAborted after Stop, kDataLoss when loss or norm is not finite (nothing is
  // updated then), and what the communicator and the source answer.
  absl::StatusOr<StepFigures> Train(int64_t step);
  // Walks `plan` over `micro_batches` evaluation micro-batches.
  absl::StatusOr<StepFigures> Evaluate(const StepPlan& plan, int64_t micro_batches);

  // Makes the current and every later walk return kAborted at its next operation. From any thread.
  void Stop() { stopped_.store(true, std::memory_order_relaxed); }
  // Returns when the communicator touches no memory of the job any more. After its Abort.
  void AwaitQuiet();
  // What was under way last: "backward h.3 round 0".
  std::string operation() const;
  const PhaseSeconds& phases() const { return phases_; }

 private:
  struct Walk {
    const StepPlan* plan;
    MicroBatches micro_batches;
    int64_t step;  // 0: an evaluation
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

  absl::Status ReadMicroBatch(const Walk& walk, int64_t round);
  absl::Status PrepareGradients(int unit);
  // Waits for an operation among those that share the rank's shards, or another communicator's.
  absl::Status WaitFor(Ticket& ticket);
  absl::Status WaitFor(Communicator& comm, Ticket& ticket);
  // The same error on every rank, none of which ends before all have it.
  absl::Status Diverged(const Walk& walk);
  absl::Status FinishReductions();
  // The summed gradients of what this rank owns of a unit.
  std::byte* Gradients(int unit);
  ExactSum CountedSquares();

  const RankPlan& plan_;
  const v1::JobSpec& spec_;
  const int rank_;  // in the data-parallel group
  const int head_;
  Ops& ops_;
  Model& model_;
  RankMesh& mesh_;
  Communicator& comm_;  // among those that share the rank's shards
  RankMemory& memory_;
  BatchSource& source_;
  std::atomic<bool> stopped_{false};

  MicroBatch batch_;
  Buffer inputs_;
  Buffer targets_;
  std::vector<UnitParams> params_;
  std::vector<Ticket> gathers_;  // by unit; 0: nothing to wait for
  std::vector<UnitGrads> grads_;
  std::vector<GradientSlot*> slots_;  // by unit; nullptr: no buffer taken in this round
  std::vector<Ticket> reductions_;
  std::vector<Ticket> unit_reductions_;     // by unit: its last reduce-scatter
  std::vector<Ticket> replica_reductions_;  // on the mesh's replicas
  int64_t current_round_ = -1;
  bool has_micro_batch_ = false;
  std::atomic<const PlannedOp*> current_{nullptr};
  PhaseSeconds phases_;
};

}  // namespace sherd
