#include "plan/step_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/gradient_shares.h"

namespace sherd {
namespace {

// A forward or backward of one unit, and the stretch of them during which a unit stays gathered.
struct Compute {
  StepOp op;
  int unit;
  int64_t round;
};
struct GatheredSpan {
  int unit;
  int64_t round;
  size_t first;  // index of the first Compute that reads the parameters
  size_t last;   // and of the last
};

class PlanBuilder {
 public:
  PlanBuilder(const Inventory& inventory, const ShardLayout& layout, const StrategyRow& strategy,
              const StepPlanOptions& options)
      : inventory_(inventory),
        layout_(layout),
        strategy_(strategy),
        options_(options),
        units_(static_cast<int>(inventory.units.size())) {}

  StepPlan Train() {
    for (int64_t round = 0; round < options_.micro_batches.rounds; ++round) {
      const size_t start = computes_.size();
      AppendForwards(round);
      for (int unit = units_ - 1; unit >= inventory_.first_trained; --unit) {
        computes_.push_back({StepOp::kBackward, unit, round});
      }
      if (strategy_.parameters == ParameterFlow::kGatherPerUse) AppendTrainSpans(round, start);
    }
    Emit(/*exchange_every_round=*/false);
    EmitWaitingReplicas();
    EmitShares();
    EmitExchange();
    for (int unit = 0; unit < units_; ++unit) {
      Push(StepOp::kUpdate, unit, -1);
      const bool changed = !IsFrozen(unit);
      if (changed && strategy_.parameters == ParameterFlow::kGatherAfterUpdate) {
        EmitGather(unit, -1);
      }
    }
    return std::move(plan_);
  }

  StepPlan Eval() {
    for (int64_t round = 0; round < options_.micro_batches.rounds; ++round) {
      const size_t start = computes_.size();
      AppendForwards(round);
      if (strategy_.parameters != ParameterFlow::kGatherPerUse) continue;
      const size_t head = computes_.size() - 1;
      for (int unit = 0; unit < units_; ++unit) {
        const size_t at = start + static_cast<size_t>(unit);
        spans_.push_back({unit, round, at, unit == 0 && inventory_.tied ? head : at});
      }
    }
    Emit(/*exchange_every_round=*/true);
    return std::move(plan_);
  }

 private:
  void AppendForwards(int64_t round) {
    for (int unit = 0; unit < units_; ++unit) {
      computes_.push_back({StepOp::kForward, unit, round});
    }
  }

  // What a forward gathers is freed after it and gathered again for the backward, except: the head,
  // whose backward follows at once; a tied embedding, which the head reads; the embedding's own
  // backward reads no parameters; blocks that the job asks to keep; and units before all that is
  // trained, which have no backward.
  void AppendTrainSpans(int64_t round, size_t start) {
    const size_t n = static_cast<size_t>(units_);
    const auto forward = [&](int unit) { return start + static_cast<size_t>(unit); };
    const auto backward = [&](int unit) { return start + 2 * n - 1 - static_cast<size_t>(unit); };
    const int head = units_ - 1;
    std::vector<GatheredSpan> spans;
    spans.push_back({0, round, forward(0), inventory_.tied ? backward(head) : forward(0)});
    for (int unit = 1; unit < head; ++unit) {
      if (unit < inventory_.first_trained) {
        spans.push_back({unit, round, forward(unit), forward(unit)});
      } else if (options_.reshard_after_forward) {
        spans.push_back({unit, round, forward(unit), forward(unit)});
        spans.push_back({unit, round, backward(unit), backward(unit)});
      } else {
        spans.push_back({unit, round, forward(unit), backward(unit)});
      }
    }
    spans.push_back({head, round, forward(head), backward(head)});
    std::sort(spans.begin(), spans.end(),
              [](const GatheredSpan& a, const GatheredSpan& b) { return a.first < b.first; });
    spans_.insert(spans_.end(), spans.begin(), spans.end());
  }

  void Emit(bool exchange_every_round) {
    std::vector<bool> gathered(static_cast<size_t>(units_), false);
    size_t next_span = 0;
    std::vector<const GatheredSpan*> by_end;
    for (const GatheredSpan& span : spans_) by_end.push_back(&span);
    std::stable_sort(
        by_end.begin(), by_end.end(),
        [](const GatheredSpan* a, const GatheredSpan* b) { return a->last < b->last; });
    size_t next_end = 0;
    for (size_t at = 0; at < computes_.size(); ++at) {
      const size_t horizon = at + static_cast<size_t>(options_.prefetch);
      while (next_span < spans_.size() && spans_[next_span].first <= horizon) {
        const GatheredSpan& span = spans_[next_span];
        // Its earlier span has not ended: gather it when it has.
        if (gathered[static_cast<size_t>(span.unit)]) break;
        gathered[static_cast<size_t>(span.unit)] = true;
        EmitGather(span.unit, span.round);
        ++next_span;
      }
      const Compute& compute = computes_[at];
      PlannedOp& op = Push(compute.op, compute.unit, compute.round);
      op.wires = TensorWires(compute);
      if (compute.op == StepOp::kBackward) EmitGradients(compute);
      for (; next_end < by_end.size() && by_end[next_end]->last == at; ++next_end) {
        const GatheredSpan& span = *by_end[next_end];
        gathered[static_cast<size_t>(span.unit)] = false;
        Push(StepOp::kFree, span.unit, span.round);
      }
      const bool round_ends =
          at + 1 == computes_.size() || computes_[at + 1].round != compute.round;
      if (exchange_every_round && round_ends) EmitExchange();
    }
  }

  void EmitGradients(const Compute& compute) {
    const MicroBatches& split = options_.micro_batches;
    const bool frozen = IsFrozen(compute.unit);
    if (strategy_.gradients == GradientFlow::kReduceScatterPerMicroBatch) {
      if (!frozen) EmitReduceScatter(compute);
      // A unit's shard is whole once its last reduce-scatter has ended: that has the time of the
      // next backward.
      if (AddsReplicas() && compute.round == split.rounds - 1) {
        EmitWaitingReplicas();
        if (!frozen) waiting_for_replicas_ = compute.unit;
      }
      return;
    }
    if (split.rounds > 1 && !frozen) Push(StepOp::kAccumulate, compute.unit, compute.round);
    if (compute.round != split.rounds - 1) return;
    // Backward goes from the last unit to the first, and so do the buckets. What is reduced
    // together lies one behind the other.
    if (frozen) {
      if (bucket_units_ > 0) EmitBucket(compute.unit + 1);
      return;
    }
    ++bucket_units_;
    bucket_shard_elements_ += Unit(compute.unit).shard_elements;
    const int64_t bucket_bytes = bucket_shard_elements_ * layout_.degree * options_.grad_bytes;
    const bool last = compute.unit == inventory_.first_trained;
    if (last || bucket_bytes >= options_.bucket_bytes) EmitBucket(compute.unit);
  }

  void EmitReduceScatter(const Compute& compute) {
    const MicroBatches& split = options_.micro_batches;
    PlannedOp& op = Push(StepOp::kReduceScatter, compute.unit, compute.round);
    const int replica = split.replica_of(options_.rank);
    const bool contributes = ShardIndex() < split.ContributorsInRound(replica, compute.round);
    Send(op, Sharers(), WireOp::kReduceScatter,
         ReduceScatterWire(layout_.degree, Unit(compute.unit).shard_elements * options_.grad_bytes,
                           contributes));
  }

  void EmitBucket(int first_unit) {
    const bool all = strategy_.gradients == GradientFlow::kAllReducePerStep;
    PlannedOp& op = Push(all ? StepOp::kAllReduce : StepOp::kReduceScatter, first_unit, -1);
    op.units = std::exchange(bucket_units_, 0);
    const int64_t shard_bytes = std::exchange(bucket_shard_elements_, 0) * options_.grad_bytes;
    // Every owner takes its part from the contributors; in an all-reduce all then take every part
    // from its owner.
    const MicroBatches& split = options_.micro_batches;
    const bool contributes = split.replica_of(options_.rank) < split.ContributingReplicas();
    Wire wire = ReduceScatterWire(layout_.degree, shard_bytes, contributes);
    if (all) wire += AllGatherWire(layout_.degree, shard_bytes);
    Send(op, Sharers(), all ? WireOp::kAllReduce : WireOp::kReduceScatter, wire);
  }

  void EmitGather(int unit, int64_t round) {
    Send(Push(StepOp::kGather, unit, round), Sharers(), WireOp::kAllGather,
         AllGatherWire(layout_.degree, Unit(unit).shard_elements * options_.param_bytes));
  }

  // Of the unit whose shard was reduced last, if any.
  void EmitWaitingReplicas() {
    if (waiting_for_replicas_ < 0) return;
    const int unit = std::exchange(waiting_for_replicas_, -1);
    const MicroBatches& split = options_.micro_batches;
    const int replica = split.replica_of(options_.rank);
    Send(Push(StepOp::kReduceReplicas, unit, -1), WireGroup::kReplica, WireOp::kAllReduce,
         AllReduceWire(split.replicas, replica, Unit(unit).shard_elements, options_.grad_bytes,
                       replica < split.ContributingReplicas()));
  }

  // Shares of gradients in the tensor-parallel group, once all micro-batches of all ranks are in
  // them.
  void EmitShares() {
    const ModelPart& part = inventory_.part;
    const int degree = part.place.degree;
    for (int unit = 0; unit < units_ && degree > 1; ++unit) {
      EmitShares(StepOp::kReduceTensor, unit, degree, part.place.index);
      if (part.kv_copies > 1 && part.kv_copies < degree) {
        EmitShares(StepOp::kReduceCopies, unit, part.kv_copies, part.place.index % part.kv_copies);
      }
    }
  }

  void EmitShares(StepOp op, int unit, int members, int member) {
    const ElementRange owned = OwnedOf(Unit(unit), layout_.degree, strategy_, options_.rank);
    const int64_t elements =
        ElementsIn(SharedGradients(inventory_.units[static_cast<size_t>(unit)], owned, members));
    if (elements == 0) return;
    Send(Push(op, unit, -1), op == StepOp::kReduceTensor ? WireGroup::kTensor : WireGroup::kKvCopy,
         WireOp::kAllReduce, AllReduceWire(members, member, elements, options_.grad_bytes));
  }

  // Records first go round those that share shards, then all of them round the replicas and then
  // the tensor-parallel group.
  void EmitExchange() {
    PlannedOp& op = Push(StepOp::kExchange, -1, -1);
    const int degree = options_.micro_batches.degree;
    const auto send = [&](WireGroup group, int64_t members, int64_t bytes) {
      const int64_t pieces = (bytes + kExchangePieceBytes - 1) / kExchangePieceBytes;
      Send(op, group, WireOp::kExchange, {(members - 1) * bytes, (members - 1) * pieces});
    };
    send(Sharers(), layout_.degree, options_.exchange_bytes);
    const int replicas = degree / layout_.degree;
    if (replicas > 1) send(WireGroup::kReplica, replicas, layout_.degree * options_.exchange_bytes);
    const int tensor = inventory_.part.place.degree;
    if (tensor > 1) send(WireGroup::kTensor, tensor, degree * options_.exchange_bytes);
  }

  std::vector<PlannedWire> TensorWires(const Compute& compute) const {
    const auto& wires =
        compute.op == StepOp::kForward ? options_.forward_wires : options_.backward_wires;
    // A rank without a micro-batch in the round computes nothing.
    const bool computes = options_.micro_batches.Index(options_.rank, compute.round) >= 0;
    return wires.empty() || !computes ? std::vector<PlannedWire>{}
                                      : wires[static_cast<size_t>(compute.unit)];
  }

  static void Send(PlannedOp& op, WireGroup group, WireOp how, const Wire& wire) {
    op.wires.push_back({group, how, wire});
  }

  PlannedOp& Push(StepOp op, int unit, int64_t round) {
    PlannedOp planned;
    planned.op = op;
    planned.unit = unit;
    planned.round = round;
    plan_.ops.push_back(planned);
    return plan_.ops.back();
  }

  // The ranks over which shards are cut: the data-parallel group unless others hold copies.
  WireGroup Sharers() const {
    return layout_.degree < options_.micro_batches.degree ? WireGroup::kShard : WireGroup::kData;
  }
  int ShardIndex() const { return options_.rank % layout_.degree; }
  bool AddsReplicas() const { return AddsUpReplicas(strategy_, options_.micro_batches); }
  bool IsFrozen(int unit) const { return inventory_.units[static_cast<size_t>(unit)].frozen; }
  const UnitLayout& Unit(int unit) const { return layout_.units[static_cast<size_t>(unit)]; }

  const Inventory& inventory_;
  const ShardLayout& layout_;
  const StrategyRow& strategy_;
  const StepPlanOptions& options_;
  const int units_;
  std::vector<Compute> computes_;
  std::vector<GatheredSpan> spans_;
  // The bucket that backward is filling.
  int bucket_units_ = 0;
  int64_t bucket_shard_elements_ = 0;
  // Whose shard is to be summed over the replicas next; -1: none.
  int waiting_for_replicas_ = -1;
  StepPlan plan_;
};

const char* NameOf(StepOp op) {
  switch (op) {
    case StepOp::kGather:
      return "gather";
    case StepOp::kForward:
      return "forward";
    case StepOp::kBackward:
      return "backward";
    case StepOp::kReduceScatter:
      return "reduce-scatter";
    case StepOp::kAccumulate:
      return "accumulate";
    case StepOp::kFree:
      return "free";
    case StepOp::kAllReduce:
      return "all-reduce";
    case StepOp::kReduceReplicas:
      return "reduce replicas";
    case StepOp::kReduceTensor:
      return "reduce tensor";
    case StepOp::kReduceCopies:
      return "reduce copies";
    case StepOp::kExchange:
      return "exchange";
    case StepOp::kUpdate:
      return "update";
  }
  return "?";
}

}  // namespace

Wire PlannedOp::wire() const {
  Wire sum;
  for (const PlannedWire& planned : wires) sum += planned.wire;
  return sum;
}

ElementRange OwnedOf(const UnitLayout& unit, int degree, const StrategyRow& strategy, int rank) {
  if (strategy.optimizer == Placement::kShard) return unit.Shard(rank % degree);
  return {0, unit.padded_elements};
}

StepPlan BuildStepPlan(const Inventory& inventory, const ShardLayout& layout,
                       const StrategyRow& strategy, const StepPlanOptions& options) {
  return PlanBuilder(inventory, layout, strategy, options).Train();
}

StepPlan BuildEvalPlan(const Inventory& inventory, const ShardLayout& layout,
                       const StrategyRow& strategy, const StepPlanOptions& options) {
  return PlanBuilder(inventory, layout, strategy, options).Eval();
}

int MaxGatheredBlocks(const StepPlan& plan, const Inventory& inventory) {
  int gathered = 0;
  int most = 0;
  for (const PlannedOp& op : plan.ops) {
    if (op.unit < 0 || inventory.units[static_cast<size_t>(op.unit)].kind != UnitKind::kBlock)
      continue;
    if (op.op == StepOp::kGather) most = std::max(most, ++gathered);
    if (op.op == StepOp::kFree) --gathered;
  }
  return most;
}

std::string Describe(const PlannedOp& op, const Inventory& inventory) {
  std::string text = NameOf(op.op);
  if (op.unit >= 0) absl::StrAppend(&text, " ", inventory.units[static_cast<size_t>(op.unit)].name);
  if (op.units > 1) {
    absl::StrAppend(&text, "..", inventory.units[static_cast<size_t>(op.unit + op.units - 1)].name);
  }
  if (op.round >= 0) absl::StrAppend(&text, " round ", op.round);
  return text;
}

std::string Describe(const StepPlan& plan, const Inventory& inventory) {
  std::string text;
  for (const PlannedOp& op : plan.ops) {
    absl::StrAppend(&text, Describe(op, inventory));
    const Wire wire = op.wire();
    if (wire.messages > 0) {
      absl::StrAppend(&text, ": ", wire.bytes, " bytes in ", wire.messages, " messages");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace sherd
