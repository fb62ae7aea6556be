#include "worker/train/rank_memory.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace sherd {
namespace {

constexpr int64_t kCacheLine = 64;

int64_t RoundUp(int64_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

DType TypeOfBytes(int64_t bytes) { return bytes == 2 ? DType::kBF16 : DType::kF32; }

bool Scatters(const RankPlan& plan) {
  return plan.strategy.gradients == GradientFlow::kReduceScatterPerMicroBatch;
}

// Cuts `owned` where the decay rule changes from one parameter to the next.
std::vector<DecaySegment> SegmentsOf(const Unit& unit, const ElementRange& owned) {
  std::vector<DecaySegment> segments;
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, owned.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, owned.end);
    if (begin >= end) continue;
    const DecaySegment segment{begin - owned.begin, end - owned.begin, parameter.decays};
    if (!segments.empty() && segments.back().decays == segment.decays) {
      segments.back().end = segment.end;
    } else {
      segments.push_back(segment);
    }
  }
  return segments;
}

}  // namespace

int64_t RankMemory::ArenaBytes(const RankPlan& plan) {
  const std::vector<UnitLayout>& units = plan.layout.units;
  int64_t bytes = 0;
  for (const UnitLayout& unit : units) {
    if (plan.strategy.params == Placement::kShard) {
      bytes += RoundUp(unit.shard_elements * plan.param_bytes);
    }
    if (!Scatters(plan)) bytes += RoundUp(unit.padded_elements * plan.grad_bytes);
  }
  if (Scatters(plan)) {
    bytes += RoundUp(units.front().padded_elements * plan.grad_bytes);
    bytes += RoundUp(units.back().padded_elements * plan.grad_bytes);
    bytes += GradientSlots(plan) * RoundUp(units[1].padded_elements * plan.grad_bytes);
  }
  return bytes;
}

RankMemory::RankMemory(const RankPlan& plan, int rank, std::byte* arena, MemoryMeter& meter)
    : meter_(meter),
      param_type_(TypeOfBytes(plan.param_bytes)),
      grad_type_(TypeOfBytes(plan.grad_bytes)),
      last_unit_(static_cast<int>(plan.layout.units.size()) - 1),
      arena_(arena),
      gathered_(plan.layout.units.size(), nullptr) {
  units_.resize(plan.layout.units.size());
  for (int unit = 0; unit <= last_unit_; ++unit) PlaceUnit(plan, rank, unit);
  PlaceTransient(plan);
  SHERD_CHECK(arena_used_ == ArenaBytes(plan));
}

RankMemory::~RankMemory() {
  for (int pool = 0; pool < kPools; ++pool) {
    if (arena_by_pool_[pool] > 0) meter_.Freed(static_cast<Pool>(pool), arena_by_pool_[pool]);
  }
}

std::byte* RankMemory::TakeArena(Pool pool, int64_t bytes) {
  std::byte* const taken = arena_ + arena_used_;
  arena_used_ += RoundUp(bytes);
  arena_by_pool_[static_cast<size_t>(pool)] += bytes;
  meter_.Allocated(pool, bytes);
  return taken;
}

std::byte* RankMemory::TakeHost(Pool pool, int64_t bytes) {
  buffers_.emplace_back(meter_, pool, bytes);
  return buffers_.back().data();
}

void RankMemory::PlaceUnit(const RankPlan& plan, int rank, int index) {
  const UnitLayout& layout = plan.layout.units[static_cast<size_t>(index)];
  const StrategyRow& row = plan.strategy;
  UnitMemory& unit = units_[static_cast<size_t>(index)];
  unit.owned = row.optimizer == Placement::kShard ? layout.Shard(rank)
                                                  : ElementRange{0, layout.padded_elements};
  unit.counted = layout.Filled(rank);
  unit.segments = SegmentsOf(plan.inventory.units[static_cast<size_t>(index)], unit.owned);

  unit.params = row.params == Placement::kShard
                    ? TakeArena(Pool::kParams, layout.shard_elements * plan.param_bytes)
                    : TakeHost(Pool::kParams, layout.padded_elements * plan.param_bytes);
  const int64_t state_bytes = unit.owned.size() * SizeOf(DType::kF32);
  unit.master = param_type_ == DType::kF32
                    ? reinterpret_cast<float*>(unit.params)
                    : reinterpret_cast<float*>(TakeHost(Pool::kOptimizer, state_bytes));
  unit.m = reinterpret_cast<float*>(TakeHost(Pool::kOptimizer, state_bytes));
  unit.v = reinterpret_cast<float*>(TakeHost(Pool::kOptimizer, state_bytes));

  const int64_t rounds = plan.micro_batches.rounds;
  if (Scatters(plan)) {
    unit.tree =
        std::make_unique<TreeAccumulator>(meter_, Pool::kGrads, layout.shard_elements, grad_type_,
                                          plan.micro_batches.count, plan.micro_batches.degree);
    return;
  }
  unit.grads = TakeArena(Pool::kGrads, layout.padded_elements * plan.grad_bytes);
  if (rounds > 1) {
    unit.tree = std::make_unique<TreeAccumulator>(meter_, Pool::kAccumulators,
                                                  layout.padded_elements, grad_type_, rounds);
  }
}

void RankMemory::PlaceTransient(const RankPlan& plan) {
  const std::vector<UnitLayout>& units = plan.layout.units;
  if (plan.strategy.parameters == ParameterFlow::kGatherPerUse) {
    const auto bytes = [&](const UnitLayout& unit) {
      return unit.padded_elements * plan.param_bytes;
    };
    gathered_embedding_ = TakeHost(Pool::kGathered, bytes(units.front()));
    gathered_head_ = TakeHost(Pool::kGathered, bytes(units.back()));
    for (int slot = 0; slot < MaxGatheredBlocks(plan.step, plan.inventory); ++slot) {
      free_gathered_blocks_.push_back(TakeHost(Pool::kGathered, bytes(units[1])));
    }
  }
  if (Scatters(plan)) {
    const auto bytes = [&](const UnitLayout& unit) {
      return unit.padded_elements * plan.grad_bytes;
    };
    embedding_slot_.data = TakeArena(Pool::kStaging, bytes(units.front()));
    head_slot_.data = TakeArena(Pool::kStaging, bytes(units.back()));
    block_slots_.resize(static_cast<size_t>(GradientSlots(plan)));
    for (GradientSlot& slot : block_slots_) slot.data = TakeArena(Pool::kStaging, bytes(units[1]));
  }
}

std::byte* RankMemory::AcquireGathered(int unit) {
  std::byte*& room = gathered_[static_cast<size_t>(unit)];
  SHERD_CHECK(room == nullptr);
  if (unit == 0) {
    room = gathered_embedding_;
  } else if (unit == last_unit_) {
    room = gathered_head_;
  } else {
    SHERD_CHECK(!free_gathered_blocks_.empty());
    room = free_gathered_blocks_.back();
    free_gathered_blocks_.pop_back();
  }
  return room;
}

void RankMemory::FreeGathered(int unit) {
  std::byte*& room = gathered_[static_cast<size_t>(unit)];
  SHERD_CHECK(room != nullptr);
  if (unit != 0 && unit != last_unit_) free_gathered_blocks_.push_back(room);
  room = nullptr;
}

GradientSlot& RankMemory::NextGradientSlot(int unit) {
  if (unit == 0) return embedding_slot_;
  if (unit == last_unit_) return head_slot_;
  GradientSlot& slot = block_slots_[next_block_slot_];
  next_block_slot_ = (next_block_slot_ + 1) % block_slots_.size();
  return slot;
}

}  // namespace sherd
