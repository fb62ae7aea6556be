#include "plan/ledger.h"

#include <algorithm>
#include <bit>
#include <string>

#include "common/check.h"
#include "plan/element_bytes.h"
#include "plan/gradient_shares.h"
#include "plan/parameter_settings.h"
#include "plan/tensor_traffic.h"

namespace sherd {
namespace {

std::vector<PlannedWire> WiresOf(const TensorTraffic& traffic) {
  std::vector<PlannedWire> wires;
  const auto add = [&](WireOp op, const Wire& wire) {
    if (wire.messages > 0) wires.push_back({WireGroup::kTensor, op, wire});
  };
  add(WireOp::kAllGather, traffic.all_gather);
  add(WireOp::kReduceScatter, traffic.reduce_scatter);
  add(WireOp::kAllReduce, traffic.all_reduce);
  return wires;
}

// What units send in the tensor-parallel group. An evaluation's head ends in the loss, a training
// step's in its backward.
void AddTensorWires(const RankPlan& plan, const v1::JobSpec& spec, bool trains,
                    StepPlanOptions& options) {
  if (plan.part().place.degree == 1) return;
  const int64_t rows = spec.train().micro_batch() * spec.train().seq_len();
  const int64_t head = static_cast<int64_t>(plan.inventory.units.size()) - 1;
  for (int64_t unit = 0; unit <= head; ++unit) {
    TensorTraffic forward = ForwardTraffic(plan.shape, plan.part(), unit, rows);
    if (!trains && unit == head) forward += LossTraffic(plan.part(), rows);
    options.forward_wires.push_back(WiresOf(forward));
    options.backward_wires.push_back(
        WiresOf(BackwardTraffic(plan.shape, plan.part(), unit, rows, KeptBy(spec.parallel()))));
  }
}

StepPlanOptions OptionsOf(const RankPlan& plan, const v1::JobSpec& spec, bool trains) {
  StepPlanOptions options;
  options.micro_batches = plan.micro_batches;
  options.rank = plan.data_rank;
  options.reshard_after_forward = spec.parallel().reshard_after_forward();
  options.prefetch = spec.parallel().prefetch();
  options.bucket_bytes = spec.parallel().bucket_mb() << 20;
  options.param_bytes = plan.param_bytes;
  options.grad_bytes = plan.grad_bytes;
  options.exchange_bytes = plan.exchange_bytes;
  AddTensorWires(plan, spec, trains, options);
  return options;
}

// Elements of all units that a rank keeps under a placement.
struct PlacedElements {
  int64_t filled = 0;
  int64_t padding = 0;
  int64_t total() const { return filled + padding; }
};

PlacedElements Place(const ShardLayout& layout, Placement placement, int shard_index) {
  PlacedElements placed;
  for (const UnitLayout& unit : layout.units) {
    const bool shard = placement == Placement::kShard;
    const int64_t filled = shard ? unit.Filled(shard_index).size() : unit.elements;
    placed.filled += filled;
    placed.padding += (shard ? unit.shard_elements : unit.padded_elements) - filled;
  }
  return placed;
}

// Elements of whole units of which at most `blocks` are blocks: the embedding, the head and so many
// blocks.
int64_t TransientElements(const RankPlan& plan, int64_t blocks) {
  const std::vector<UnitLayout>& units = plan.layout.units;
  int64_t elements = units.front().padded_elements + units.back().padded_elements;
  if (blocks > 0) elements += blocks * units[1].padded_elements;
  return elements;
}

void AddPredicted(const Wire& wire, v1::WireLine& line) {
  line.mutable_bytes()->set_predicted(line.bytes().predicted() + wire.bytes);
  line.mutable_messages()->set_predicted(line.messages().predicted() + wire.messages);
}

void PredictWire(const StepPlan& step, v1::RankLedger& ledger) {
  auto& by_op = *ledger.mutable_wire();
  auto& by_group = *ledger.mutable_wire_by_group();
  v1::WireLine& total = by_op["total"];
  for (const PlannedOp& op : step.ops) {
    for (const PlannedWire& planned : op.wires) {
      AddPredicted(planned.wire, by_op[std::string(NameOf(planned.op))]);
      AddPredicted(planned.wire, by_group[std::string(NameOf(planned.group))]);
      AddPredicted(planned.wire, total);
    }
  }
}

// Of the communicators that the rank forms.
int64_t PredictCommBytes(const RankPlan& plan, const GroupMedia& media) {
  const MicroBatches& split = plan.micro_batches;
  int64_t bytes = CommBytes(media.sharers, plan.layout.degree);
  if (plan.AddsReplicas()) {
    bytes += CommBytes(media.replicas, split.degree / plan.layout.degree);
  }
  const ModelPart& part = plan.part();
  if (part.place.degree > 1) bytes += CommBytes(media.tensor, part.place.degree);
  if (SumsOverKvCopies(plan)) bytes += CommBytes(media.kv_copies, part.kv_copies);
  return bytes;
}

}  // namespace

RankPlan BuildRankPlan(const v1::JobSpec& spec, int rank, int world) {
  const int tensor = static_cast<int>(spec.parallel().tensor());
  SHERD_CHECK(tensor >= 1 && world % tensor == 0 && rank >= 0 && rank < world);
  const int degree = world / tensor;
  RankPlan plan;
  plan.rank = rank;
  plan.data_rank = rank / tensor;
  const StrategyRow* row = FindStrategy(spec.parallel());
  SHERD_CHECK(row != nullptr);
  plan.strategy = *row;
  plan.shape = ShapeOf(spec.model());
  plan.inventory = BuildInventory(plan.shape, TensorPlaceOf(spec.parallel(), rank % tensor));
  ApplySettings(spec.train(), plan.inventory);
  plan.layout = BuildShardLayout(plan.inventory, ShardDegreeOf(*row, spec.parallel(), degree));
  plan.micro_batches = SplitMicroBatches(spec.train().global_batch() / spec.train().micro_batch(),
                                         degree, ReplicasOf(*row, spec.parallel(), degree));
  plan.exchange_bytes = kExchangeFixedBytes + kExchangeBytesPerRound * plan.micro_batches.rounds;
  plan.param_bytes = ElementBytes(spec.precision().compute());
  plan.grad_bytes = ElementBytes(spec.precision().grad());
  plan.keeps_versions = spec.elastic().replicas() > 0;
  plan.saves = spec.checkpoint().every() > 0;
  plan.offloads = spec.parallel().offload() == v1::OFFLOAD_OPTIMIZER;
  plan.step = BuildStepPlan(plan.inventory, plan.layout, plan.strategy,
                            OptionsOf(plan, spec, /*trains=*/true));
  return plan;
}

StepPlan BuildEvalPlanFor(const RankPlan& plan, const v1::JobSpec& spec, int64_t micro_batches) {
  StepPlanOptions options = OptionsOf(plan, spec, /*trains=*/false);
  options.micro_batches =
      SplitMicroBatches(micro_batches, plan.micro_batches.degree, /*replicas=*/1);
  options.exchange_bytes = kExchangeFixedBytes + kExchangeBytesPerRound;
  return BuildEvalPlan(plan.inventory, plan.layout, plan.strategy, options);
}

GradientRoom RoomIn(const RankPlan& plan) {
  const bool scattered = plan.ScattersEachMicroBatch();
  if (scattered && plan.micro_batches.rounds > 1) return {};
  std::vector<int64_t> bytes;
  for (const UnitLayout& unit : plan.layout.units) {
    bytes.push_back((scattered ? unit.shard_elements : unit.padded_elements) * plan.grad_bytes);
  }
  return GradientRoom(bytes, plan.inventory.tied && !scattered ? 1 : 0);
}

KeptActivations KeptBy(const v1::ParallelSpec& parallel) {
  return parallel.recompute() == v1::RECOMPUTE_BLOCK ? KeptActivations::kBlockInputs
                                                     : KeptActivations::kEverything;
}

int64_t TreeBuffers(int64_t leaves, int64_t per_fold) {
  int64_t most = std::max(1, std::popcount(static_cast<uint64_t>(leaves)));
  for (int64_t count = per_fold; count < leaves; count += per_fold) {
    most = std::max<int64_t>(most, std::popcount(static_cast<uint64_t>(count)));
  }
  return most;
}

int64_t GradientSlots(const RankPlan& plan) {
  const int64_t blocks = static_cast<int64_t>(plan.layout.units.size()) - 2;
  return std::min<int64_t>(kBlockGradientSlots, blocks);
}

int64_t ArenaBytes(const RankPlan& plan) {
  int64_t shard_elements = 0;
  int64_t whole_elements = 0;
  for (const UnitLayout& unit : plan.layout.units) {
    shard_elements += unit.shard_elements;
    whole_elements += unit.padded_elements;
  }
  const StrategyRow& row = plan.strategy;
  int64_t bytes = 0;
  if (row.params == Placement::kShard) bytes += shard_elements * plan.param_bytes;
  if (row.parameters == ParameterFlow::kGatherAfterUpdate) {
    bytes += whole_elements * plan.param_bytes;
  }
  bytes += (plan.ScattersEachMicroBatch() ? TransientElements(plan, GradientSlots(plan))
                                          : whole_elements) *
           plan.grad_bytes;
  return bytes;
}

int64_t VersionBytes(const RankPlan& plan) {
  int64_t elements = 0;
  for (size_t unit = 0; unit < plan.layout.units.size(); ++unit) {
    elements += plan.Owned(static_cast<int>(unit)).size();
  }
  return elements * kVersionElementBytes;
}

std::vector<ElementRange> RankPlan::Counted(int unit) const {
  // Copies of shards are not counted again.
  if (data_rank >= layout.degree) return {};
  return FirstHeld(inventory.units[static_cast<size_t>(unit)],
                   layout.units[static_cast<size_t>(unit)].Filled(ShardIndex()),
                   part().place.index);
}

std::vector<ElementRange> RankPlan::Normed(int unit) const {
  return TrainedIn(inventory.units[static_cast<size_t>(unit)], Counted(unit));
}

int64_t SnapshotBytes(const RankPlan& plan) {
  int64_t elements = 0;
  for (size_t unit = 0; unit < plan.layout.units.size(); ++unit) {
    elements += ElementsIn(plan.Counted(static_cast<int>(unit)));
  }
  return elements * kVersionElementBytes;
}

int64_t HoldingBytes(const RankPlan& plan) {
  constexpr int64_t kPage = 4096;
  const int64_t slot = (VersionBytes(plan) + kPage - 1) / kPage * kPage;
  return kHoldingHeadBytes + 2 * slot;
}

int64_t ReplicaArenaBytes(const RankPlan& plan) {
  if (!plan.AddsReplicas()) return 0;
  int64_t elements = 0;
  for (const UnitLayout& unit : plan.layout.units) elements += unit.shard_elements;
  return elements * plan.grad_bytes;
}

int64_t ShareBytes(const RankPlan& plan, int members) {
  if (members == 1) return 0;
  const bool shards = plan.strategy.optimizer == Placement::kShard;
  int64_t most = 0;
  for (size_t unit = 0; unit < plan.inventory.units.size(); ++unit) {
    for (int rank = 0; rank < (shards ? plan.layout.degree : 1); ++rank) {
      const ElementRange owned =
          OwnedOf(plan.layout.units[unit], plan.layout.degree, plan.strategy, rank);
      most =
          std::max(most, ElementsIn(SharedGradients(plan.inventory.units[unit], owned, members)));
    }
  }
  constexpr int64_t kCacheLine = 64;
  return (most * plan.grad_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

int64_t TensorArenaBytes(const RankPlan& plan, const v1::JobSpec& spec) {
  return TensorArenaActivationBytes(plan.shape, plan.part(), spec.train().micro_batch(),
                                    spec.train().seq_len(), KeptBy(spec.parallel())) +
         ShareBytes(plan, plan.part().place.degree);
}

bool SumsOverKvCopies(const RankPlan& plan) {
  const ModelPart& part = plan.part();
  return part.kv_copies > 1 && part.kv_copies < part.place.degree;
}

ScratchSizes ScratchOf(const RankPlan& plan, const v1::JobSpec& spec) {
  return PredictScratch(plan.shape, plan.part(), spec.train().micro_batch(), spec.train().seq_len(),
                        plan.param_bytes, plan.grad_bytes);
}

int64_t CommBytes(Medium medium, int64_t members) {
  switch (medium) {
    case Medium::kTcp:
      return (members - 1) * kTcpStagingBytes;
    case Medium::kNccl:
      return (members - 1) * kNcclStagingBytes;
    case Medium::kSharedMemory:
      break;
  }
  return kShmControlBytes;
}

namespace {

// Copies of the rank's state beside the one that is updated.
int64_t CopiesBytes(const RankPlan& plan) {
  const int64_t snapshot = plan.saves ? SnapshotBytes(plan) : 0;
  if (!plan.keeps_versions) return snapshot;
  // What is updated is one of the versions.
  const int64_t updated =
      VersionBytes(plan) / kVersionElementBytes * OptimizerElementBytes(plan.param_bytes);
  return snapshot + HoldingBytes(plan) - updated;
}

}  // namespace

int64_t StoredForBytes(const v1::Assignment& assignment) {
  int64_t bytes = 0;
  for (const int owner : assignment.stored_for()) {
    bytes += HoldingBytes(BuildRankPlan(assignment.spec(), owner, assignment.world()));
  }
  return bytes;
}

v1::RankLedger PredictLedger(const v1::Assignment& assignment, const RankPlan& plan, int threads) {
  return PredictLedger(plan, assignment.spec(), threads, MediaOf(assignment),
                       StoredForBytes(assignment));
}

v1::RankLedger PredictLedger(const RankPlan& plan, const v1::JobSpec& spec, int threads,
                             const GroupMedia& media, int64_t stored_for_bytes) {
  const StrategyRow& row = plan.strategy;
  const int shard_index = plan.ShardIndex();
  v1::RankLedger ledger;
  ledger.set_rank(plan.rank);
  ledger.set_offload(spec.parallel().offload());
  int64_t peak = 0;
  const auto predict = [&](const char* pool, int64_t bytes) {
    (*ledger.mutable_memory())[pool].set_predicted(bytes);
    peak += bytes;
  };
  int64_t padding = 0;
  const auto predict_state = [&](const char* pool, Placement placement, int64_t element_bytes) {
    const PlacedElements placed = Place(plan.layout, placement, shard_index);
    predict(pool, placed.filled * element_bytes);
    padding += placed.padding * element_bytes;
  };
  predict_state("params", row.params, plan.param_bytes);
  predict_state("grads", row.grads, plan.grad_bytes);
  predict_state("optimizer", row.optimizer, OptimizerElementBytes(plan.param_bytes));
  predict("padding", padding);
  const int64_t copies = CopiesBytes(plan) + stored_for_bytes;
  if (plan.keeps_versions || plan.saves || copies > 0) predict("replicas", copies);

  const bool scattered = plan.ScattersEachMicroBatch();
  const MicroBatches& split = plan.micro_batches;
  // A scattered gradient ends up in its counter's first buffer; a whole one has a buffer beside
  // them.
  const int64_t accumulators =
      scattered
          ? TreeBuffers(split.CountOf(split.replica_of(plan.data_rank)), split.replica_size()) - 1
      : split.rounds > 1 ? TreeBuffers(split.rounds, 1)
                         : 0;
  predict("accumulators",
          accumulators * Place(plan.layout, row.grads, shard_index).total() * plan.grad_bytes);
  const int64_t token_bytes = 2 * spec.train().micro_batch() * spec.train().seq_len() *
                              static_cast<int64_t>(sizeof(int32_t));
  const int64_t unit_gradient_bytes =
      scattered ? TransientElements(plan, GradientSlots(plan)) * plan.grad_bytes : 0;
  const int tensor = plan.part().place.degree;
  const int64_t share_bytes =
      ShareBytes(plan, tensor) +
      (SumsOverKvCopies(plan) ? ShareBytes(plan, plan.part().kv_copies) : 0);
  predict("staging", token_bytes + unit_gradient_bytes + share_bytes);
  const bool gathers = row.parameters == ParameterFlow::kGatherPerUse;
  predict("gathered", gathers
                          ? TransientElements(plan, MaxGatheredBlocks(plan.step, plan.inventory)) *
                                plan.param_bytes
                          : 0);
  predict("activations",
          PredictActivationBytes(plan.shape, plan.part(), spec.train().micro_batch(),
                                 spec.train().seq_len(), KeptBy(spec.parallel()), RoomIn(plan)));
  predict("comm", PredictCommBytes(plan, media));
  predict("scratch", ScratchOf(plan, spec).Bytes(threads));
  (*ledger.mutable_memory())["peak"].set_predicted(peak);
  PredictWire(plan.step, ledger);
  return ledger;
}

}  // namespace sherd
