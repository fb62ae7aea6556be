#include "worker/train/rank_memory.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "plan/element_bytes.h"

namespace sherd {
namespace {

constexpr int64_t kCacheLine = 64;

DType TypeOfBytes(int64_t bytes) { return bytes == 2 ? DType::kBF16 : DType::kF32; }

// Cuts `owned` where settings change from one parameter to the next.
std::vector<UpdateSegment> SegmentsOf(const Unit& unit, const ElementRange& owned) {
  std::vector<UpdateSegment> segments;
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, owned.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, owned.end);
    if (begin >= end) continue;
    const UpdateSegment segment{begin - owned.begin, end - owned.begin, parameter.settings};
    if (!segments.empty() && segments.back().settings == segment.settings) {
      segments.back().end = segment.end;
    } else {
      segments.push_back(segment);
    }
  }
  return segments;
}

}  // namespace

RankMemory::RankMemory(const RankPlan& plan, const RankArenas& arenas, const VersionSlots& versions,
                       MemoryMeter& meter, Accelerator* accelerator)
    : meter_(meter),
      accelerator_(accelerator),
      param_type_(TypeOfBytes(plan.param_bytes)),
      grad_type_(TypeOfBytes(plan.grad_bytes)),
      last_unit_(static_cast<int>(plan.layout.units.size()) - 1),
      sharers_{arenas.sharers},
      replicas_{arenas.replicas},
      tensor_{arenas.tensor},
      kv_copies_{arenas.kv_copies},
      sums_(arenas.sums),
      tensor_degree_(plan.part().place.degree),
      gathered_(plan.layout.units.size(), nullptr) {
  units_.resize(plan.layout.units.size());
  for (int unit = 0; unit <= last_unit_; ++unit) PlaceState(plan, unit);
  if (plan.keeps_versions) PlaceVersions(versions);
  if (offloads(plan)) PlaceRing(plan, versions);
  // Gradients lie one unit behind the other: a bucket of units is one run of elements, and what
  // they leave free before a backward one room.
  if (plan.ScattersEachMicroBatch() && !plan.AddsReplicas()) PlaceSums(plan);
  for (int unit = 0; unit <= last_unit_; ++unit) PlaceGradients(plan, unit);
  PlaceTransient(plan);
  SHERD_CHECK(sharers_.used == ArenaBytes(plan));
  SHERD_CHECK(replicas_.used == ReplicaArenaBytes(plan));
  TakeArena(tensor_, Pool::kStaging, ShareBytes(plan, tensor_degree_));
  if (SumsOverKvCopies(plan)) {
    TakeArena(kv_copies_, Pool::kStaging, ShareBytes(plan, plan.part().kv_copies));
  }
}

RankMemory::~RankMemory() {
  ring_.reset();
  for (std::byte* const slot : locked_slots_) accelerator_->Unlock(slot);
  for (const MemoryMeter::Side side : {MemoryMeter::Side::kDevice, MemoryMeter::Side::kHost}) {
    for (int pool = 0; pool < kPools; ++pool) {
      meter_.Freed(static_cast<Pool>(pool), foreign_by_pool_[static_cast<size_t>(side)][pool],
                   side);
    }
  }
}

std::byte* RankMemory::TakeArena(Arena& arena, Pool pool, int64_t bytes, int64_t padding) {
  // Shards are whole cache lines.
  SHERD_CHECK(bytes % kCacheLine == 0);
  std::byte* const taken = arena.begin + arena.used;
  arena.used += bytes;
  Count(pool, bytes - padding);
  Count(Pool::kPadding, padding);
  return taken;
}

void RankMemory::Count(Pool pool, int64_t bytes, MemoryMeter::Side side) {
  foreign_by_pool_[static_cast<size_t>(side)][static_cast<size_t>(pool)] += bytes;
  meter_.Allocated(pool, bytes, side);
}

std::byte* RankMemory::TakeOwn(Pool pool, int64_t bytes, int64_t padding) {
  buffers_.emplace_back(meter_, pool, bytes, padding);
  return buffers_.back().data();
}

void RankMemory::PlaceState(const RankPlan& plan, int index) {
  const UnitLayout& layout = plan.layout.units[static_cast<size_t>(index)];
  const StrategyRow& row = plan.strategy;
  UnitMemory& unit = units_[static_cast<size_t>(index)];
  const int shard_index = plan.ShardIndex();
  const ElementRange filled = layout.Filled(shard_index);
  const int64_t shard_padding = layout.shard_elements - filled.size();
  const int64_t whole_padding = layout.padded_elements - layout.elements;
  const bool owns_shard = row.optimizer == Placement::kShard;
  const Unit& description = plan.inventory.units[static_cast<size_t>(index)];
  unit.owned = plan.Owned(index);
  unit.counted = plan.Counted(index);
  unit.normed = plan.Normed(index);
  unit.segments = SegmentsOf(description, unit.owned);

  const int64_t param_bytes = plan.param_bytes;
  if (row.params == Placement::kShard) {
    unit.params = TakeArena(sharers_, Pool::kParams, layout.shard_elements * param_bytes,
                            shard_padding * param_bytes);
    unit.owned_params = unit.params;
  } else {
    const int64_t bytes = layout.padded_elements * param_bytes;
    const int64_t padding = whole_padding * param_bytes;
    const bool gathers = row.parameters == ParameterFlow::kGatherAfterUpdate;
    unit.params = gathers ? TakeArena(sharers_, Pool::kParams, bytes, padding)
                          : TakeOwn(Pool::kParams, bytes, padding);
    unit.owned_params = unit.params + unit.owned.begin * param_bytes;
  }
  if (has_own_memory()) {
    const int64_t padding = owns_shard ? shard_padding : whole_padding;
    if (plan.offloads) {
      PlaceOffloadedState(plan, unit, padding);
    } else {
      PlaceDeviceState(plan, unit, padding);
    }
    return;
  }
  if (plan.keeps_versions) {
    const int64_t padding = owns_shard ? shard_padding : whole_padding;
    const int64_t element_bytes = OptimizerElementBytes(param_bytes);
    Count(Pool::kOptimizer, (unit.owned.size() - padding) * element_bytes);
    Count(Pool::kPadding, padding * element_bytes);
    updated_bytes_ += unit.owned.size() * element_bytes;
    return;
  }
  const auto take_state = [&] {
    const int64_t padding = owns_shard ? shard_padding : whole_padding;
    return reinterpret_cast<float*>(TakeOwn(
        Pool::kOptimizer, unit.owned.size() * SizeOf(DType::kF32), padding * SizeOf(DType::kF32)));
  };
  unit.state.master =
      param_type_ == DType::kF32 ? reinterpret_cast<float*>(unit.owned_params) : take_state();
  unit.state.m = take_state();
  unit.state.v = take_state();
  unit.next = unit.state;
}

void RankMemory::PlaceDeviceState(const RankPlan& plan, UnitMemory& unit, int64_t padding) {
  const int64_t bytes = unit.owned.size() * SizeOf(DType::kF32);
  const auto take = [&] {
    return reinterpret_cast<float*>(
        TakeOwn(Pool::kOptimizer, bytes, padding * SizeOf(DType::kF32)));
  };
  unit.device_state.master =
      param_type_ == DType::kF32 ? reinterpret_cast<float*>(unit.owned_params) : take();
  unit.device_state.m = take();
  unit.device_state.v = take();
  if (plan.keeps_versions) return;
  buffers_.push_back(Buffer::OnHost(meter_, Pool::kReplicas, 3 * bytes));
  auto* const home = buffers_.back().as<float>();
  unit.state = {home, home + unit.owned.size(), home + 2 * unit.owned.size()};
  unit.next = unit.state;
}

void RankMemory::PlaceOffloadedState(const RankPlan& plan, UnitMemory& unit, int64_t padding) {
  if (param_type_ == DType::kF32) {
    unit.device_state.master = reinterpret_cast<float*>(unit.owned_params);
  }
  const int64_t owned = unit.owned.size();
  const int64_t bytes = owned * kVersionElementBytes;
  const int64_t padding_bytes = padding * kVersionElementBytes;
  if (plan.keeps_versions) {
    // It is one of the versions.
    Count(Pool::kOptimizer, bytes - padding_bytes, MemoryMeter::Side::kHost);
    Count(Pool::kPadding, padding_bytes, MemoryMeter::Side::kHost);
    updated_bytes_ += bytes;
    return;
  }
  buffers_.push_back(Buffer::OnHost(meter_, Pool::kOptimizer, bytes, padding_bytes,
                                    accelerator_->locked_memory()));
  auto* const home = buffers_.back().as<float>();
  // Without memory the device's status says so.
  if (home != nullptr) unit.state = {home, home + owned, home + 2 * owned};
  unit.next = unit.state;
}

void RankMemory::PlaceRing(const RankPlan& plan, const VersionSlots& versions) {
  if (plan.keeps_versions) {
    for (std::byte* const slot : {versions.current, versions.next}) {
      accelerator_->Lock(slot, VersionBytes(plan));
      locked_slots_.push_back(slot);
    }
  }
  ring_ = std::make_unique<StateRing>(OffloadChunkElements(plan), param_type_ != DType::kF32,
                                      *accelerator_, meter_);
}

void RankMemory::PlaceVersions(const VersionSlots& versions) {
  SHERD_CHECK(versions.current != nullptr && versions.next != nullptr);
  const auto place = [&](std::byte* slot, AdamWState UnitMemory::*state) {
    auto* taken = reinterpret_cast<float*>(slot);
    for (UnitMemory& unit : units_) {
      const int64_t owned = unit.owned.size();
      unit.*state = {taken, taken + owned, taken + 2 * owned};
      taken += 3 * owned;
    }
  };
  place(versions.current, &UnitMemory::state);
  place(versions.next, &UnitMemory::next);
  Count(Pool::kReplicas, versions.bytes - updated_bytes_, MemoryMeter::Side::kHost);
}

void RankMemory::PlaceSums(const RankPlan& plan) {
  int64_t elements = 0;
  int64_t filled = 0;
  for (const UnitLayout& unit : plan.layout.units) {
    elements += unit.shard_elements;
    filled += unit.Filled(plan.ShardIndex()).size();
  }
  next_sum_ =
      TakeOwn(Pool::kGrads, elements * plan.grad_bytes, (elements - filled) * plan.grad_bytes);
}

void RankMemory::PlaceGradients(const RankPlan& plan, int index) {
  const UnitLayout& layout = plan.layout.units[static_cast<size_t>(index)];
  UnitMemory& unit = units_[static_cast<size_t>(index)];
  const MicroBatches& split = plan.micro_batches;
  if (plan.ScattersEachMicroBatch()) {
    const int64_t padding = layout.shard_elements - layout.Filled(plan.ShardIndex()).size();
    const int64_t bytes = layout.shard_elements * plan.grad_bytes;
    const int64_t leaves = split.CountOf(split.replica_of(plan.data_rank));
    std::byte* const sum =
        plan.AddsReplicas() ? TakeArena(replicas_, Pool::kGrads, bytes, padding * plan.grad_bytes)
                            : std::exchange(next_sum_, next_sum_ + bytes);
    // Sums of a device that come about on the host are brought there behind the last backward.
    const bool brought = has_own_memory() && sums_ == nullptr;
    if (plan.AddsReplicas() || brought) unit.owned_grads = sum;
    unit.tree =
        brought
            ? std::make_unique<TreeAccumulator>(meter_, Pool::kAccumulators, layout.shard_elements,
                                                grad_type_, leaves, split.replica_size())
            : std::make_unique<TreeAccumulator>(meter_, sum, layout.shard_elements, grad_type_,
                                                leaves, split.replica_size(), side_of_sums());
    if (index == 0) gradients_ = sum;
    return;
  }
  unit.grads = TakeArena(sharers_, Pool::kGrads, layout.padded_elements * plan.grad_bytes,
                         (layout.padded_elements - layout.elements) * plan.grad_bytes);
  if (index == 0) gradients_ = unit.grads;
  unit.owned_grads = unit.grads + unit.owned.begin * plan.grad_bytes;
  if (split.rounds > 1) {
    unit.tree = std::make_unique<TreeAccumulator>(meter_, Pool::kAccumulators,
                                                  layout.padded_elements, grad_type_, split.rounds,
                                                  /*leaves_per_fold=*/1, side_of_sums());
  }
}

void RankMemory::PlaceTransient(const RankPlan& plan) {
  const std::vector<UnitLayout>& units = plan.layout.units;
  if (plan.strategy.parameters == ParameterFlow::kGatherPerUse) {
    const auto bytes = [&](const UnitLayout& unit) {
      return unit.padded_elements * plan.param_bytes;
    };
    gathered_embedding_ = TakeOwn(Pool::kGathered, bytes(units.front()));
    gathered_head_ = TakeOwn(Pool::kGathered, bytes(units.back()));
    for (int slot = 0; slot < MaxGatheredBlocks(plan.step, plan.inventory); ++slot) {
      free_gathered_blocks_.push_back(TakeOwn(Pool::kGathered, bytes(units[1])));
    }
  }
  if (plan.ScattersEachMicroBatch()) {
    const auto bytes = [&](const UnitLayout& unit) {
      return unit.padded_elements * plan.grad_bytes;
    };
    embedding_slot_.data = TakeArena(sharers_, Pool::kStaging, bytes(units.front()));
    head_slot_.data = TakeArena(sharers_, Pool::kStaging, bytes(units.back()));
    block_slots_.resize(static_cast<size_t>(GradientSlots(plan)));
    for (GradientSlot& slot : block_slots_)
      slot.data = TakeArena(sharers_, Pool::kStaging, bytes(units[1]));
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
