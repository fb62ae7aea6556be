#include "worker/train/rank_state.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/fold.h"
#include "worker/model/init.h"

namespace sherd {

namespace {

// Elements [begin, end) of a unit's flat buffer as they start; `to` holds them.
void InitializeElements(const Unit& unit, uint64_t seed, const ElementRange& range, float* to) {
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, range.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, range.end);
    if (begin >= end) continue;
    InitializeRange(parameter, seed, begin - parameter.offset, end - parameter.offset,
                    to + (begin - range.begin));
  }
}

// Elements that are made in fp32 at one time, where they are stored in another type.
constexpr int64_t kPieceElements = int64_t{1} << 16;

}  // namespace

void StoreParameters(RankMemory& memory, int index, Ops& ops) {
  const DType type = memory.param_type();
  ReadMasters(memory, index, [&](int64_t begin, int64_t end, const float* masters) {
    std::byte* const to = memory.unit(index).owned_params + begin * SizeOf(type);
    if (reinterpret_cast<const std::byte*>(masters) == to) return;
    ops.Cast(masters, DType::kF32, to, type, end - begin);
  });
}

void ReadMasters(RankMemory& memory, int index,
                 absl::FunctionRef<void(int64_t begin, int64_t end, const float* masters)> read) {
  const UnitMemory& unit = memory.unit(index);
  const int64_t owned = unit.owned.size();
  if (unit.device_state.master != nullptr) {
    read(0, owned, unit.device_state.master);
  } else if (memory.ring() != nullptr) {
    memory.ring()->Read(unit.state.master, owned, read);
  } else {
    read(0, owned, unit.state.master);
  }
}

void SendState(UnitMemory& unit, Device& device) {
  if (!device.has_own_memory()) return;
  const int64_t bytes = unit.owned.size() * SizeOf(DType::kF32);
  const auto send = [&](float* to, const float* from) {
    // Where there is none, it passes through.
    if (to != nullptr) device.CopyIn(to, from, bytes);
  };
  send(unit.device_state.master, unit.state.master);
  send(unit.device_state.m, unit.state.m);
  send(unit.device_state.v, unit.state.v);
}

void BringStateHome(const RankPlan& plan, RankMemory& memory, Device& device) {
  if (!device.has_own_memory() || plan.keeps_versions) return;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory.unit(static_cast<int>(index));
    const int64_t bytes = unit.owned.size() * SizeOf(DType::kF32);
    const auto bring = [&](float* to, const float* from) {
      if (from != nullptr) device.CopyOut(to, from, bytes);
    };
    bring(unit.state.master, unit.device_state.master);
    bring(unit.state.m, unit.device_state.m);
    bring(unit.state.v, unit.device_state.v);
  }
}

void InitializeParameters(const RankPlan& plan, uint64_t seed, RankMemory& memory, Ops& ops,
                          Device& device) {
  std::vector<float> piece(static_cast<size_t>(kPieceElements));
  std::vector<std::byte> stored(piece.size() * sizeof(float));
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const Unit& description = plan.inventory.units[index];
    UnitMemory& unit = memory.unit(static_cast<int>(index));
    InitializeElements(description, seed, unit.owned, unit.state.master);
    SendState(unit, device);
    const int64_t padded = plan.layout.units[index].padded_elements;
    if (plan.strategy.params == Placement::kShard || unit.owned.size() == padded) {
      StoreParameters(memory, static_cast<int>(index), ops);
      continue;
    }
    for (int64_t begin = 0; begin < padded; begin += kPieceElements) {
      const ElementRange range{begin, std::min(begin + kPieceElements, padded)};
      std::fill(piece.begin(), piece.end(), 0.0f);
      InitializeElements(description, seed, range, piece.data());
      std::byte* const to = unit.params + begin * plan.param_bytes;
      if (device.has_own_memory()) {
        CastSerial(piece.data(), DType::kF32, stored.data(), memory.param_type(), range.size());
        device.CopyIn(to, stored.data(), range.size() * plan.param_bytes);
      } else {
        ops.Cast(piece.data(), DType::kF32, to, memory.param_type(), range.size());
      }
    }
  }
}

}  // namespace sherd
