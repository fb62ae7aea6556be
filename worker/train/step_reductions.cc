// What becomes of gradients between backward and update: who adds up which, and where.
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/status_macros.h"
#include "plan/gradient_shares.h"
#include "worker/comm/stream_tree.h"
#include "worker/train/phase_timer.h"
#include "worker/train/step_executor.h"

namespace sherd {

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
  BringSum(*unit.tree, unit.owned_grads, unit.owned.size());
  replica_reductions_.push_back(
      mesh_.replicas()->AllReduce(unit.owned_grads, unit.owned.size(), memory_.grad_type(),
                                  walk.micro_batches.ContributingReplicas()));
  return absl::OkStatus();
}

void* StepExecutor::SumOf(TreeAccumulator& tree) {
  return memory_.sums() == nullptr ? tree.Finish() : tree.Finish(*memory_.sums());
}

void StepExecutor::BringSum(TreeAccumulator& tree, std::byte* to, int64_t elements) {
  const int64_t bytes = elements * plan_.grad_bytes;
  if (memory_.sums() == nullptr) {
    device_.CopyIn(to, tree.Finish(), bytes);
  } else {
    device_.CopyWithin(to, tree.Finish(*memory_.sums()), bytes);
  }
}

void StepExecutor::Accumulate(const PlannedOp& op, const Walk& walk) {
  UnitMemory& unit = memory_.unit(op.unit);
  const PhaseTimer timer(phases_.backward);
  if (has_micro_batch_) FoldOwn(op.unit);
  if (op.round != walk.micro_batches.rounds - 1) return;
  const int64_t padded = plan_.layout.units[static_cast<size_t>(op.unit)].padded_elements;
  BringSum(*unit.tree, unit.grads, padded);
}

void StepExecutor::FoldOwn(int index) {
  UnitMemory& unit = memory_.unit(index);
  if (memory_.sums() == nullptr) {
    unit.tree->Fold({GradientsOnHost(index)});
    return;
  }
  StreamTree tree(*memory_.sums(), memory_.grad_type());
  void* const leaf = unit.grads;
  unit.tree->BeginFold(1);
  // The next backward writes there, behind this.
  unit.tree->FoldRange(tree, absl::MakeConstSpan(&leaf, 1), /*kept=*/0, 0, unit.tree->elements());
  unit.tree->EndFold();
}

const std::byte* StepExecutor::GradientsOnHost(int unit) {
  const std::byte* const grads = memory_.unit(unit).grads;
  if (!device_.has_own_memory()) return grads;
  const int64_t padded = plan_.layout.units[static_cast<size_t>(unit)].padded_elements;
  device_.CopyOut(leaf_.data(), grads, padded * plan_.grad_bytes);
  return leaf_.data();
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
  const bool lands = device_.has_own_memory() && memory_.sums() == nullptr &&
                     plan_.ScattersEachMicroBatch() && !plan_.AddsReplicas() &&
                     !landed_[static_cast<size_t>(unit)];
  if (lands) {
    landed_[static_cast<size_t>(unit)] = true;
    BringSum(*memory.tree, memory.owned_grads, memory.owned.size());
  }
  if (memory.owned_grads != nullptr) return memory.owned_grads;
  return static_cast<std::byte*>(SumOf(*memory.tree));
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
      const int64_t bytes = range.size() * plan_.grad_bytes;
      device_.CopyWithin(back ? here : at, back ? at : here, bytes);
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

}  // namespace sherd
