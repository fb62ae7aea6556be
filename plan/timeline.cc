#include "plan/timeline.h"

#include <algorithm>

#include "plan/gradient_shares.h"
#include "plan/model_flops.h"

namespace sherd {
namespace {

class Walk {
 public:
  Walk(const TimelineUnits& timeline, const CostModel& cost)
      : timeline_(timeline),
        cost_(cost),
        gathered_(timeline.units.size(), 0.0),
        unit_reduced_(timeline.units.size(), 0.0),
        slot_of_(timeline.units.size(), kNoSlot),
        // The embedding's and the head's, then the blocks' in turn.
        slot_free_(static_cast<size_t>(kFirstBlockSlot + timeline.block_gradient_slots), 0.0) {}

  void Run(const PlannedOp& op) {
    const size_t unit = static_cast<size_t>(std::max(0, op.unit));
    switch (op.op) {
      case StepOp::kGather:
        gathered_[unit] = Start(op);
        break;
      case StepOp::kForward:
        WaitUntil(gathered_[unit]);
        Compute(timeline_.units[unit].forward);
        Exchange(op);
        break;
      case StepOp::kBackward:
        WaitUntil(gathered_[unit]);
        TakeSlot(unit);
        if (timeline_.tied && unit == Head()) TakeSlot(0);
        Compute(timeline_.units[unit].backward);
        Exchange(op);
        if (!timeline_.units[unit].reduced) slot_of_[unit] = kNoSlot;
        break;
      case StepOp::kReduceScatter:
      case StepOp::kAllReduce:
        reduced_ = Start(op, ReduceSeconds(op));
        unit_reduced_[unit] = reduced_;
        if (slot_of_[unit] != kNoSlot) {
          slot_free_[static_cast<size_t>(slot_of_[unit])] = reduced_;
          slot_of_[unit] = kNoSlot;
        }
        break;
      case StepOp::kReduceReplicas:
        WaitUntil(unit_reduced_[unit]);
        reduced_ = Start(op, ReduceSeconds(op));
        break;
      case StepOp::kAccumulate:
        Compute(timeline_.units[unit].accumulate);
        break;
      case StepOp::kReduceTensor:
      case StepOp::kReduceCopies:
      case StepOp::kExchange:
        WaitUntil(reduced_);
        WaitUntil(Start(op));
        break;
      case StepOp::kUpdate:
        Compute(timeline_.units[unit].update);
        break;
      case StepOp::kFree:
        break;
    }
  }

  void AwaitGathers() {
    for (const double gathered : gathered_) WaitUntil(gathered);
  }

  // So far.
  StepTimes times() const {
    StepTimes times = times_;
    times.step = now_;
    return times;
  }

 private:
  static constexpr int64_t kNoSlot = -1;
  static constexpr int64_t kFirstBlockSlot = 2;

  size_t Head() const { return timeline_.units.size() - 1; }

  void Compute(double seconds) {
    now_ += seconds;
    times_.compute += seconds;
  }

  void WaitUntil(double then) {
    times_.exposed += std::max(0.0, then - now_);
    now_ = std::max(now_, then);
  }

  // What a forward or backward sends in the tensor-parallel group, whose links are its own.
  void Exchange(const PlannedOp& op) {
    const double seconds = SecondsOf(op);
    times_.communication += seconds;
    WaitUntil(now_ + seconds);
  }

  double SecondsOf(const PlannedOp& op) const {
    double seconds = 0;
    for (const PlannedWire& planned : op.wires) {
      const bool on_host =
          planned.group == WireGroup::kTensor || planned.group == WireGroup::kKvCopy;
      const double bandwidth = on_host ? cost_.tensor_bandwidth : cost_.bandwidth;
      seconds += static_cast<double>(planned.wire.messages) * cost_.seconds_per_message +
                 static_cast<double>(planned.wire.bytes) / bandwidth;
    }
    return seconds;
  }

  double ReduceSeconds(const PlannedOp& op) const {
    double seconds = 0;
    for (int unit = op.unit; unit < op.unit + op.units; ++unit) {
      seconds += timeline_.units[static_cast<size_t>(unit)].reduce;
    }
    return seconds;
  }

  // When the communication that starts now will have ended.
  double Start(const PlannedOp& op, double sums = 0) {
    const double seconds = SecondsOf(op) + sums;
    times_.communication += seconds;
    link_free_ = std::max(now_, link_free_) + seconds;
    if (cost_.shares_cores) WaitUntil(link_free_);
    return link_free_;
  }

  void TakeSlot(size_t unit) {
    if (timeline_.block_gradient_slots == 0 || slot_of_[unit] != kNoSlot) return;
    int64_t slot = unit == 0 ? 0 : 1;
    if (unit != 0 && unit != Head()) {
      slot = kFirstBlockSlot + next_block_slot_;
      next_block_slot_ = (next_block_slot_ + 1) % timeline_.block_gradient_slots;
    }
    slot_of_[unit] = slot;
    WaitUntil(slot_free_[static_cast<size_t>(slot)]);
  }

  const TimelineUnits& timeline_;
  const CostModel& cost_;
  double now_ = 0;
  double link_free_ = 0;
  // When the unit's last gather, its last reduction, or the last reduction of any, has ended.
  std::vector<double> gathered_;
  std::vector<double> unit_reduced_;
  double reduced_ = 0;
  // The buffer that holds a unit's gradients of this round, and when each may be written again.
  std::vector<int64_t> slot_of_;
  std::vector<double> slot_free_;
  int64_t next_block_slot_ = 0;
  StepTimes times_;
};

// The part of a unit's elements that is updated.
double TrainedShare(const Unit& unit) {
  const int64_t trained = ElementsIn(TrainedIn(unit, {{0, unit.elements}}));
  return static_cast<double>(trained) / static_cast<double>(unit.elements);
}

}  // namespace

StepTimes WalkTimeline(const StepPlan& plan, const TimelineUnits& timeline, const CostModel& cost) {
  Walk walk(timeline, cost);
  for (const PlannedOp& op : plan.ops) walk.Run(op);
  walk.AwaitGathers();
  return walk.times();
}

StepTimes WalkRepeatedly(const StepPlan& plan, const TimelineUnits& timeline,
                         const CostModel& cost) {
  Walk walk(timeline, cost);
  for (const PlannedOp& op : plan.ops) walk.Run(op);
  const StepTimes first = walk.times();
  for (const PlannedOp& op : plan.ops) walk.Run(op);
  const StepTimes both = walk.times();
  return {.step = both.step - first.step,
          .compute = both.compute - first.compute,
          .communication = both.communication - first.communication,
          .exposed = both.exposed - first.exposed};
}

StepTimes EstimateStep(const RankPlan& plan, const v1::JobSpec& spec, const CostModel& cost) {
  const v1::TrainSpec& train = spec.train();
  const bool recomputes = spec.parallel().recompute() == v1::RECOMPUTE_BLOCK;
  TimelineUnits timeline;
  timeline.tied = plan.inventory.tied;
  if (plan.ScattersEachMicroBatch()) timeline.block_gradient_slots = GradientSlots(plan);
  const int64_t tokens = train.micro_batch() * train.seq_len();
  for (size_t i = 0; i < plan.inventory.units.size(); ++i) {
    const Unit& unit = plan.inventory.units[i];
    const UnitLayout& layout = plan.layout.units[i];
    const bool shard = plan.strategy.optimizer == Placement::kShard;
    UnitSeconds seconds;
    seconds.forward =
        ForwardFlops(plan.shape, plan.inventory, unit, train.seq_len(), tokens) / cost.flops;
    seconds.backward = kBackwardPerForward * seconds.forward;
    // The last block's activations are still there.
    const bool dropped = unit.kind == UnitKind::kBlock && i + 2 < plan.inventory.units.size();
    if (recomputes && dropped) {
      seconds.backward +=
          RecomputedFlops(plan.shape, plan.inventory, unit, train.seq_len(), tokens) / cost.flops;
    }
    // The owner of a shard adds up what the others, too, have computed of it.
    seconds.reduce =
        static_cast<double>(layout.shard_elements * (plan.layout.degree - 1)) * cost.fold_seconds;
    seconds.accumulate = static_cast<double>(unit.elements) * cost.fold_seconds;
    seconds.update = static_cast<double>(shard ? layout.shard_elements : unit.elements) *
                     TrainedShare(unit) * cost.optimizer_seconds;
    seconds.reduced = !unit.frozen;
    timeline.units.push_back(seconds);
  }
  return WalkRepeatedly(plan.step, timeline, cost);
}

}  // namespace sherd
