// The figures of a step: what each rank says, and what all make of it.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/train/phase_timer.h"
#include "worker/train/step_executor.h"

namespace sherd {

ExactSum StepExecutor::CountedSquares() {
  ExactSum sum;
  for (int unit = 0; unit <= head_; ++unit) {
    const UnitMemory& memory = memory_.unit(unit);
    for (const ElementRange& range : memory.normed) {
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
    const WaitingFlag flag(waiting_);
    SHERD_RETURN_IF_ERROR(mesh_.Exchange(record.data(), whole.data(), record_bytes));
  }
  all.clear();
  for (size_t rank = 0; rank < ranks; ++rank) {
    all.push_back(ExchangeRecord::Read(absl::MakeConstSpan(whole.data() + rank * size, size)));
  }
  return absl::OkStatus();
}

absl::Status StepExecutor::AwaitStored() {
  if (!commits_.copies()) return commits_.AwaitStored();
  const PhaseTimer timer(phases_.exposed);
  const WaitingFlag flag(waiting_);
  return commits_.AwaitStored();
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
  if (trains) {
    mine.pause = pause_.load(std::memory_order_relaxed);
    mine.save = save_;
    mine.busy_seconds = phases_.busy() - std::exchange(busy_told_, phases_.busy());
    SHERD_RETURN_IF_ERROR(AwaitStored());
  }
  std::vector<ExchangeRecord> all;
  SHERD_RETURN_IF_ERROR(ExchangeRecords(mine, all));
  if (trains) commits_.Commit();

  // An evaluation exchanges after every round, so each record holds that round alone.
  const int64_t first_index = trains ? 0 : current_round_ * walk.micro_batches.degree;
  const int64_t last_index =
      trains ? walk.micro_batches.count
             : std::min(walk.micro_batches.count, first_index + walk.micro_batches.degree);
  ExactSum squares;
  for (const ExchangeRecord& record : all) {
    squares.Add(record.squares);
    walk.figures.pause = walk.figures.pause || record.pause;
    if (!trains) continue;
    walk.figures.busy_seconds.push_back(record.busy_seconds);
    walk.figures.saves.push_back(record.save);
  }
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
  if (!trains) return std::isfinite(loss) ? absl::OkStatus() : Diverge(walk);

  walk.figures.loss = loss / static_cast<double>(std::max<int64_t>(1, walk.figures.tokens));
  walk.figures.grad_norm = std::sqrt(squares.Value());
  if (!std::isfinite(walk.figures.loss) || !std::isfinite(walk.figures.grad_norm)) {
    return Diverge(walk);
  }
  const double clip = spec_.train().grad_clip();
  if (clip > 0) {
    walk.grad_scale = static_cast<float>(std::min(1.0, clip / (walk.figures.grad_norm + 1e-6)));
  }
  return commits_.BeginUpdate();
}

absl::Status StepExecutor::Diverge(const Walk& walk) {
  // Whoever ends first aborts the communicator: not before all have left the exchange, which is
  // when all are in the barrier. Every rank has seen the same figures, so what becomes of the
  // barrier itself says nothing.
  mesh_.Barrier().IgnoreError();
  diverged_ = true;
  return absl::DataLossError(absl::StrCat(
      walk.step > 0 ? absl::StrCat("step ", walk.step) : "the evaluation", " diverged: loss ",
      walk.figures.loss, ", gradient norm ", walk.figures.grad_norm,
      "; nothing was updated with it. Lower train.optimizer.lr or lengthen "
      "train.schedule.warmup"));
}

}  // namespace sherd
