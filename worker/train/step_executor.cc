#include "worker/train/step_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "plan/gradient_shares.h"

namespace sherd {
namespace {

// Adds the time until destruction to a phase.
class PhaseTimer {
 public:
  explicit PhaseTimer(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~PhaseTimer() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point start_;
};

int64_t CountTargets(const int32_t* targets, int64_t n) {
  return std::count_if(targets, targets + n, [](int32_t target) { return target >= 0; });
}

}  // namespace

StepExecutor::StepExecutor(const RankPlan& plan, const v1::JobSpec& spec, Ops& ops, Model& model,
                           RankMesh& mesh, RankMemory& memory, BatchSource& source,
                           MemoryMeter& meter)
    : plan_(plan),
      spec_(spec),
      rank_(plan.data_rank),
      head_(static_cast<int>(plan.inventory.units.size()) - 1),
      ops_(ops),
      model_(model),
      mesh_(mesh),
      comm_(mesh.sharers()),
      memory_(memory),
      source_(source),
      params_(plan.inventory.units.size()),
      gathers_(plan.inventory.units.size(), 0),
      grads_(plan.inventory.units.size()),
      slots_(plan.inventory.units.size(), nullptr),
      unit_reductions_(plan.inventory.units.size(), 0) {
  batch_.batch = spec.train().micro_batch();
  batch_.tokens = spec.train().seq_len();
  const int64_t bytes = batch_.batch * batch_.tokens * static_cast<int64_t>(sizeof(int32_t));
  inputs_ = Buffer(meter, Pool::kStaging, bytes);
  targets_ = Buffer(meter, Pool::kStaging, bytes);
  batch_.inputs = inputs_.as<int32_t>();
  batch_.targets = targets_.as<int32_t>();
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

absl::StatusOr<StepFigures> StepExecutor::Train(int64_t step) {
  for (int unit = 0; unit <= head_; ++unit) {
    if (memory_.unit(unit).tree != nullptr) memory_.unit(unit).tree->Reset();
  }
  Walk walk;
  walk.plan = &plan_.step;
  walk.micro_batches = plan_.micro_batches;
  walk.step = step;
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
  reductions_.clear();
  replica_reductions_.clear();
  for (const PlannedOp& op : walk.plan->ops) {
    if (stopped_.load(std::memory_order_relaxed)) return absl::AbortedError("the job was stopped");
    SHERD_RETURN_IF_ERROR(mesh_.status());
    current_.store(&op, std::memory_order_relaxed);
    SHERD_RETURN_IF_ERROR(RunOp(op, walk));
  }
  // What was gathered after the update: the step ends when all parameters are whole again.
  for (Ticket& gather : gathers_) SHERD_RETURN_IF_ERROR(WaitFor(gather));
  current_.store(nullptr, std::memory_order_relaxed);
  return walk.figures;
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
  const Ticket waited = std::exchange(ticket, 0);
  return comm.Wait(waited);
}

void StepExecutor::AwaitQuiet() { mesh_.AwaitQuiet(); }

absl::Status StepExecutor::ReadMicroBatch(const Walk& walk, int64_t round) {
  if (round == current_round_) return absl::OkStatus();
  const PhaseTimer timer(phases_.data);
  current_round_ = round;
  const int64_t index = walk.micro_batches.Index(rank_, round);
  has_micro_batch_ = index >= 0;
  if (!has_micro_batch_) return absl::OkStatus();
  int32_t* const inputs = inputs_.as<int32_t>();
  int32_t* const targets = targets_.as<int32_t>();
  return walk.step > 0 ? source_.ReadTrain(walk.step, index, inputs, targets)
                       : source_.ReadEval(index, inputs, targets);
}

absl::Status StepExecutor::Forward(const PlannedOp& op, Walk& walk) {
  SHERD_RETURN_IF_ERROR(ReadMicroBatch(walk, op.round));
  SHERD_RETURN_IF_ERROR(WaitFor(gathers_[static_cast<size_t>(op.unit)]));
  const bool evaluates = walk.step == 0;
  double loss = 0;
  int64_t tokens = 0;
  if (has_micro_batch_) {
    const PhaseTimer timer(phases_.forward);
    model_.Forward(op.unit, params_, batch_);
    if (op.unit == head_ && evaluates) loss = model_.Loss(params_, batch_);
    if (op.unit == head_) tokens = CountTargets(batch_.targets, batch_.batch * batch_.tokens);
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
  slots_[at] = &slot;
  grads_[at].data = slot.data;
  return absl::OkStatus();
}

absl::Status StepExecutor::Backward(const PlannedOp& op, Walk& walk) {
  SHERD_RETURN_IF_ERROR(WaitFor(gathers_[static_cast<size_t>(op.unit)]));
  SHERD_RETURN_IF_ERROR(PrepareGradients(op.unit));
  if (op.unit == head_ && plan_.inventory.tied) SHERD_RETURN_IF_ERROR(PrepareGradients(0));
  if (!has_micro_batch_) return absl::OkStatus();
  const PhaseTimer timer(phases_.backward);
  const double global_tokens = static_cast<double>(spec_.train().global_batch() * batch_.tokens);
  const double loss =
      model_.Backward(op.unit, params_, grads_, batch_, static_cast<float>(1.0 / global_tokens));
  if (op.unit == head_) walk.losses.back() = loss;
  return absl::OkStatus();
}

void StepExecutor::ReduceScatter(const PlannedOp& op, const Walk& walk) {
  if (!plan_.ScattersEachMicroBatch()) return ReduceBucket(op, walk);
  const size_t at = static_cast<size_t>(op.unit);
  GradientSlot& slot = *std::exchange(slots_[at], nullptr);
  const MicroBatches& split = walk.micro_batches;
  slot.reduction =
      comm_.ReduceScatter(slot.data, split.ContributorsInRound(split.replica_of(rank_), op.round),
                          memory_.unit(op.unit).tree.get());
  unit_reductions_[at] = slot.reduction;
  reductions_.push_back(slot.reduction);
}

absl::Status StepExecutor::ReduceReplicas(const PlannedOp& op, const Walk& walk) {
  SHERD_RETURN_IF_ERROR(WaitFor(unit_reductions_[static_cast<size_t>(op.unit)]));
  UnitMemory& unit = memory_.unit(op.unit);
  unit.tree->FinishInto(unit.owned_grads);
  replica_reductions_.push_back(
      mesh_.replicas()->AllReduce(unit.owned_grads, unit.owned.size(), memory_.grad_type(),
                                  walk.micro_batches.ContributingReplicas()));
  return absl::OkStatus();
}

void StepExecutor::Accumulate(const PlannedOp& op, const Walk& walk) {
  UnitMemory& unit = memory_.unit(op.unit);
  const PhaseTimer timer(phases_.backward);
  if (has_micro_batch_) unit.tree->Fold({unit.grads});
  if (op.round != walk.micro_batches.rounds - 1) return;
  const int64_t padded = plan_.layout.units[static_cast<size_t>(op.unit)].padded_elements;
  std::memcpy(unit.grads, unit.tree->Finish(), static_cast<size_t>(padded * plan_.grad_bytes));
}

void StepExecutor::ReduceBucket(const PlannedOp& op, const Walk& walk) {
  std::vector<int64_t> segments;
  for (int unit = op.unit; unit < op.unit + op.units; ++unit) {
    segments.push_back(plan_.layout.units[static_cast<size_t>(unit)].padded_elements);
  }
  std::byte* const gradients = memory_.unit(op.unit).grads;
  const int contributors = walk.micro_batches.ContributingReplicas();
  const int64_t elements = std::accumulate(segments.begin(), segments.end(), int64_t{0});
  reductions_.push_back(
      op.op == StepOp::kAllReduce
          ? comm_.AllReduce(gradients, elements, memory_.grad_type(), contributors)
          : comm_.ReduceScatterInPlace(gradients, segments, memory_.grad_type(), contributors));
}

absl::Status StepExecutor::FinishReductions() {
  for (Ticket& ticket : reductions_) SHERD_RETURN_IF_ERROR(WaitFor(ticket));
  for (Ticket& ticket : replica_reductions_) {
    SHERD_RETURN_IF_ERROR(WaitFor(*mesh_.replicas(), ticket));
  }
  reductions_.clear();
  replica_reductions_.clear();
  return absl::OkStatus();
}

std::byte* StepExecutor::Gradients(int unit) {
  UnitMemory& memory = memory_.unit(unit);
  if (memory.owned_grads != nullptr) return memory.owned_grads;
  return static_cast<std::byte*>(memory.tree->Finish());
}

absl::Status StepExecutor::ReduceShares(const PlannedOp& op) {
  SHERD_RETURN_IF_ERROR(FinishReductions());
  const ModelPart& part = plan_.part();
  const int members = op.op == StepOp::kReduceTensor ? part.place.degree : part.kv_copies;
  const ElementRange owned = memory_.unit(op.unit).owned;
  const std::vector<ElementRange> shared =
      SharedGradients(plan_.inventory.units[static_cast<size_t>(op.unit)], owned, members);
  std::byte* const gradients = Gradients(op.unit);
  std::byte* const shares = memory_.shares(members);
  // Takes them to where the others read them, and back.
  const auto move = [&](bool back) {
    std::byte* at = shares;
    for (const ElementRange& range : shared) {
      std::byte* const here = gradients + (range.begin - owned.begin) * plan_.grad_bytes;
      const size_t bytes = static_cast<size_t>(range.size() * plan_.grad_bytes);
      std::memcpy(back ? here : at, back ? at : here, bytes);
      at += bytes;
    }
  };
  move(/*back=*/false);
  Communicator& comm = mesh_.Sharing(members);
  Ticket sum = comm.AllReduce(shares, ElementsIn(shared), memory_.grad_type(), members);
  SHERD_RETURN_IF_ERROR(WaitFor(comm, sum));
  move(/*back=*/true);
  return absl::OkStatus();
}

ExactSum StepExecutor::CountedSquares() {
  ExactSum sum;
  for (int unit = 0; unit <= head_; ++unit) {
    const UnitMemory& memory = memory_.unit(unit);
    for (const ElementRange& range : memory.counted) {
      const int64_t skipped = range.begin - memory.owned.begin;
      ops_.AddSquares(Gradients(unit) + skipped * plan_.grad_bytes, memory_.grad_type(),
                      range.size(), sum);
    }
  }
  return sum;
}

absl::Status StepExecutor::ExchangeRecords(const ExchangeRecord& mine,
                                           std::vector<ExchangeRecord>& all) {
  const int64_t record_bytes =
      kExchangeFixedBytes + kExchangeBytesPerRound * static_cast<int64_t>(mine.losses.size());
  const size_t size = static_cast<size_t>(record_bytes);
  std::vector<std::byte> record(size);
  mine.Write(absl::MakeSpan(record));
  const size_t ranks = static_cast<size_t>(mesh_.size());
  std::vector<std::byte> whole(size * ranks);
  {
    const PhaseTimer timer(phases_.exposed);
    SHERD_RETURN_IF_ERROR(mesh_.Exchange(record.data(), whole.data(), record_bytes));
  }
  all.clear();
  for (size_t rank = 0; rank < ranks; ++rank) {
    all.push_back(ExchangeRecord::Read(absl::MakeConstSpan(whole.data() + rank * size, size)));
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::ExchangeFigures(const PlannedOp& op, Walk& walk) {
  const bool trains = walk.step > 0;
  SHERD_RETURN_IF_ERROR(FinishReductions());
  ExchangeRecord mine;
  if (trains) {
    const PhaseTimer timer(phases_.update);
    mine.squares = CountedSquares();
  }
  mine.losses = std::exchange(walk.losses, {});
  mine.tokens = std::exchange(walk.tokens, {});
  std::vector<ExchangeRecord> all;
  SHERD_RETURN_IF_ERROR(ExchangeRecords(mine, all));

  // An evaluation exchanges after every round, so each record holds that round alone.
  const int64_t first_index = trains ? 0 : current_round_ * walk.micro_batches.degree;
  const int64_t last_index =
      trains ? walk.micro_batches.count
             : std::min(walk.micro_batches.count, first_index + walk.micro_batches.degree);
  ExactSum squares;
  for (const ExchangeRecord& record : all) squares.Add(record.squares);
  // Summed in the order of the global micro-batch, so the bits do not depend on who computed it.
  double loss = trains ? 0 : walk.figures.loss;
  for (int64_t index = first_index; index < last_index; ++index) {
    const MicroBatches::Place place = walk.micro_batches.Of(index);
    // All members of a tensor-parallel group know the loss of what they compute together.
    const ExchangeRecord& record = all[static_cast<size_t>(place.rank * plan_.part().place.degree)];
    const size_t round = trains ? static_cast<size_t>(place.round) : 0;
    loss += record.losses[round];
    walk.figures.tokens += record.tokens[round];
  }
  walk.figures.loss = loss;
  if (!trains) return std::isfinite(loss) ? absl::OkStatus() : Diverged(walk);

  walk.figures.loss = loss / static_cast<double>(walk.figures.tokens);
  walk.figures.grad_norm = std::sqrt(squares.Value());
  if (!std::isfinite(walk.figures.loss) || !std::isfinite(walk.figures.grad_norm)) {
    return Diverged(walk);
  }
  const double clip = spec_.train().grad_clip();
  if (clip > 0) {
    walk.grad_scale = static_cast<float>(std::min(1.0, clip / (walk.figures.grad_norm + 1e-6)));
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::Diverged(const Walk& walk) {
  // Whoever ends first aborts the communicator: not before all have left the exchange, which is
  // when all are in the barrier. Every rank has seen the same figures, so what becomes of the
  // barrier itself says nothing.
  mesh_.Barrier().IgnoreError();
  return absl::DataLossError(absl::StrCat(
      walk.step > 0 ? absl::StrCat("step ", walk.step) : "the evaluation", " diverged: loss ",
      walk.figures.loss, ", gradient norm ", walk.figures.grad_norm,
      "; nothing was updated with it. Lower train.optimizer.lr or lengthen "
      "train.schedule.warmup"));
}

void StepExecutor::Update(int unit, const Walk& walk) {
  const PhaseTimer timer(phases_.update);
  UnitMemory& memory = memory_.unit(unit);
  const v1::OptimizerSpec& optimizer = spec_.train().optimizer();
  AdamWParams params;
  params.lr = LearningRate(spec_.train(), walk.step);
  params.beta1 = optimizer.beta1();
  params.beta2 = optimizer.beta2();
  params.eps = optimizer.eps();
  params.step = walk.step;
  params.grad_scale = walk.grad_scale;
  const std::byte* const gradients = Gradients(unit);
  for (const DecaySegment& segment : memory.segments) {
    params.weight_decay = segment.decays ? optimizer.weight_decay() : 0.0;
    const GradOut stored{memory.owned_params + segment.begin * plan_.param_bytes,
                         memory_.param_type(),
                         /*accumulate=*/false};
    ops_.AdamW(stored, memory.master + segment.begin, memory.m + segment.begin,
               memory.v + segment.begin, gradients + segment.begin * plan_.grad_bytes,
               memory_.grad_type(), params, segment.end - segment.begin);
  }
}

}  // namespace sherd
