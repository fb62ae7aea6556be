#include "worker/train/step_executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "plan/host_staging.h"
#include "worker/train/phase_timer.h"

namespace sherd {
namespace {

int64_t CountTargets(const int32_t* targets, int64_t n) {
  return std::count_if(targets, targets + n, [](int32_t target) { return target >= 0; });
}

}  // namespace

StepExecutor::StepExecutor(const RankPlan& plan, const v1::JobSpec& spec, Ops& ops, Model& model,
                           const TensorGroup* tensor, RankMesh& mesh, RankMemory& memory,
                           StepCommits& commits, BatchSource& source, MemoryMeter& meter,
                           Device& device)
    : plan_(plan),
      spec_(spec),
      rank_(plan.data_rank),
      head_(static_cast<int>(plan.inventory.units.size()) - 1),
      ops_(ops),
      model_(model),
      tensor_(tensor),
      mesh_(mesh),
      comm_(mesh.sharers()),
      memory_(memory),
      commits_(commits),
      source_(source),
      device_(device),
      params_(plan.inventory.units.size()),
      gathers_(plan.inventory.units.size(), 0),
      grads_(plan.inventory.units.size()),
      slots_(plan.inventory.units.size(), nullptr),
      unit_reductions_(plan.inventory.units.size(), 0),
      landed_(plan.inventory.units.size(), false) {
  batch_.batch = spec.train().micro_batch();
  batch_.tokens = spec.train().seq_len();
  const int64_t bytes = batch_.batch * batch_.tokens * static_cast<int64_t>(sizeof(int32_t));
  inputs_ = Buffer::OnHost(meter, Pool::kStaging, bytes);
  targets_ = Buffer::OnHost(meter, Pool::kStaging, bytes);
  batch_.inputs = inputs_.as<int32_t>();
  batch_.targets = targets_.as<int32_t>();
  if (device.has_own_memory()) {
    if (memory.sums() == nullptr) {
      leaf_ = Buffer::OnHost(meter, Pool::kStaging, LeafBytes(plan));
    }
    device_batch_ = Buffer(meter, Pool::kStaging, 2 * bytes);
    batch_.inputs = device_batch_.as<int32_t>();
    batch_.targets = batch_.inputs + batch_.batch * batch_.tokens;
  }
  for (int unit = 0; unit <= head_; ++unit) {
    const size_t at = static_cast<size_t>(unit);
    params_[at].dtype = memory.param_type();
    grads_[at].dtype = memory.grad_type();
    if (plan.strategy.params == Placement::kWhole) {
      params_[at].data = memory.unit(unit).params;
    }
    grads_[at].data = memory.unit(unit).grads;
  }
}

std::string StepExecutor::operation() const {
  const PlannedOp* op = current_.load(std::memory_order_relaxed);
  return op == nullptr ? "before the first operation" : Describe(*op, plan_.inventory);
}

absl::StatusOr<StepFigures> StepExecutor::Train(int64_t step, int64_t window) {
  for (int unit = 0; unit <= head_; ++unit) {
    if (memory_.unit(unit).tree != nullptr) memory_.unit(unit).tree->Reset();
    landed_[static_cast<size_t>(unit)] = false;
  }
  Walk walk;
  walk.plan = &plan_.step;
  walk.micro_batches = plan_.micro_batches;
  walk.step = step;
  walk.window = window;
  // All may be masked: then nothing counts, and nothing is divided by zero.
  const int64_t targets = std::max<int64_t>(1, source_.TrainTargets(window));
  walk.loss_scale = static_cast<float>(1.0 / static_cast<double>(targets));
  return Run(std::move(walk));
}

absl::StatusOr<StepFigures> StepExecutor::Evaluate(const StepPlan& plan, int64_t micro_batches) {
  Walk walk;
  walk.plan = &plan;
  walk.micro_batches = SplitMicroBatches(micro_batches, mesh_.data_size(), /*replicas=*/1);
  walk.step = 0;
  SHERD_ASSIGN_OR_RETURN(StepFigures sums, Run(std::move(walk)));
  sums.loss /= static_cast<double>(std::max<int64_t>(1, sums.tokens));
  return sums;
}

absl::StatusOr<StepFigures> StepExecutor::Run(Walk walk) {
  current_round_ = -1;
  diverged_ = false;
  reductions_.clear();
  replica_reductions_.clear();
  for (const PlannedOp& op : walk.plan->ops) {
    if (stopped_.load(std::memory_order_relaxed)) return absl::AbortedError("the job was stopped");
    SHERD_RETURN_IF_ERROR(mesh_.status());
    SHERD_RETURN_IF_ERROR(device_.status());
    current_.store(&op, std::memory_order_relaxed);
    SHERD_RETURN_IF_ERROR(RunOp(op, walk));
  }
  SHERD_RETURN_IF_ERROR(device_.Synchronize());
  current_.store(nullptr, std::memory_order_relaxed);
  return walk.figures;
}

absl::Status StepExecutor::Settle() {
  for (Ticket& gather : gathers_) SHERD_RETURN_IF_ERROR(WaitFor(gather));
  return absl::OkStatus();
}

void StepExecutor::GatherWholeParameters() {
  if (plan_.strategy.parameters != ParameterFlow::kGatherAfterUpdate) return;
  for (int unit = 0; unit <= head_; ++unit) Gather(unit);
}

absl::Status StepExecutor::RunOp(const PlannedOp& op, Walk& walk) {
  switch (op.op) {
    case StepOp::kGather:
      Gather(op.unit);
      return absl::OkStatus();
    case StepOp::kForward:
      return Forward(op, walk);
    case StepOp::kBackward:
      return Backward(op, walk);
    case StepOp::kReduceScatter:
      ReduceScatter(op, walk);
      return absl::OkStatus();
    case StepOp::kAccumulate:
      Accumulate(op, walk);
      return absl::OkStatus();
    case StepOp::kFree:
      Free(op.unit);
      return absl::OkStatus();
    case StepOp::kAllReduce:
      ReduceBucket(op, walk);
      return absl::OkStatus();
    case StepOp::kReduceReplicas:
      return ReduceReplicas(op, walk);
    case StepOp::kReduceTensor:
    case StepOp::kReduceCopies:
      return ReduceShares(op);
    case StepOp::kExchange:
      return ExchangeFigures(op, walk);
    case StepOp::kUpdate:
      Update(op.unit, walk);
      return absl::OkStatus();
  }
  return absl::InternalError("unknown operation in the step plan");
}

void StepExecutor::Gather(int unit) {
  const size_t at = static_cast<size_t>(unit);
  const UnitMemory& memory = memory_.unit(unit);
  const bool kept = plan_.strategy.params == Placement::kWhole;
  std::byte* const room = kept ? memory.params : memory_.AcquireGathered(unit);
  const int64_t bytes = plan_.layout.units[at].shard_elements * plan_.param_bytes;
  gathers_[at] = comm_.AllGather(memory.owned_params, room, bytes);
  params_[at].data = room;
}

void StepExecutor::Free(int unit) {
  memory_.FreeGathered(unit);
  params_[static_cast<size_t>(unit)].data = nullptr;
}

absl::Status StepExecutor::WaitFor(Ticket& ticket) { return WaitFor(comm_, ticket); }

absl::Status StepExecutor::WaitFor(Communicator& comm, Ticket& ticket) {
  if (ticket == 0) return absl::OkStatus();
  const PhaseTimer timer(phases_.exposed);
  const WaitingFlag flag(waiting_);
  const Ticket waited = std::exchange(ticket, 0);
  return comm.Wait(waited);
}

void StepExecutor::AwaitQuiet() { mesh_.AwaitQuiet(); }

absl::Status StepExecutor::Compute(double& phase, absl::FunctionRef<void()> part) {
  const double waited_before = tensor_ == nullptr ? 0 : tensor_->exposed_seconds();
  {
    const PhaseTimer timer(phase);
    part();
  }
  if (tensor_ == nullptr) return absl::OkStatus();
  const double waited = tensor_->exposed_seconds() - waited_before;
  phases_.exposed += waited;
  phase -= waited;
  return mesh_.tensor()->status();
}

absl::Status StepExecutor::ReadMicroBatch(const Walk& walk, int64_t round) {
  if (round == current_round_) return absl::OkStatus();
  const PhaseTimer timer(phases_.data);
  current_round_ = round;
  const int64_t index = walk.micro_batches.Index(rank_, round);
  has_micro_batch_ = index >= 0;
  if (!has_micro_batch_) return absl::OkStatus();
  int32_t* const inputs = inputs_.as<int32_t>();
  int32_t* const targets = targets_.as<int32_t>();
  SHERD_RETURN_IF_ERROR(walk.step > 0 ? source_.ReadTrain(walk.window, index, inputs, targets)
                                      : source_.ReadEval(index, inputs, targets));
  if (device_.has_own_memory()) {
    device_.CopyIn(device_batch_.data(), inputs, inputs_.bytes());
    device_.CopyIn(device_batch_.data() + inputs_.bytes(), targets, targets_.bytes());
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::Forward(const PlannedOp& op, Walk& walk) {
  SHERD_RETURN_IF_ERROR(ReadMicroBatch(walk, op.round));
  SHERD_RETURN_IF_ERROR(WaitFor(gathers_[static_cast<size_t>(op.unit)]));
  const bool evaluates = walk.step == 0;
  double loss = 0;
  int64_t tokens = 0;
  if (has_micro_batch_) {
    SHERD_RETURN_IF_ERROR(Compute(phases_.forward, [&] {
      model_.Forward(op.unit, params_, batch_);
      if (op.unit == head_ && evaluates) loss = model_.Loss(params_, batch_);
    }));
    if (op.unit == head_)
      tokens = CountTargets(targets_.as<int32_t>(), batch_.batch * batch_.tokens);
  }
  if (op.unit == head_) {
    // A training step's loss is known after the head's backward.
    walk.losses.push_back(loss);
    walk.tokens.push_back(tokens);
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::PrepareGradients(int unit) {
  const size_t at = static_cast<size_t>(unit);
  // Whole gradients have a place of their own.
  if (memory_.unit(unit).grads != nullptr || slots_[at] != nullptr) return absl::OkStatus();
  GradientSlot& slot = memory_.NextGradientSlot(unit);
  // Peers may still read what an earlier backward wrote here.
  SHERD_RETURN_IF_ERROR(WaitFor(slot.reduction));
  // What nobody reduces leaves its buffer to the unit that is next.
  if (!plan_.inventory.units[at].frozen) slots_[at] = &slot;
  grads_[at].data = slot.data;
  return absl::OkStatus();
}

absl::Status StepExecutor::Backward(const PlannedOp& op, Walk& walk) {
  SHERD_RETURN_IF_ERROR(WaitFor(gathers_[static_cast<size_t>(op.unit)]));
  SHERD_RETURN_IF_ERROR(PrepareGradients(op.unit));
  if (op.unit == head_ && plan_.inventory.tied) SHERD_RETURN_IF_ERROR(PrepareGradients(0));
  if (!has_micro_batch_) return absl::OkStatus();
  double loss = 0;
  SHERD_RETURN_IF_ERROR(Compute(phases_.backward, [&] {
    loss = model_.Backward(op.unit, params_, grads_, batch_, walk.loss_scale);
  }));
  if (op.unit == head_) walk.losses.back() = loss;
  return absl::OkStatus();
}

}  // namespace sherd
