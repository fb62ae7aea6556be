#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/device_stream.h"
#include "kernels/dtype.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/ledger.h"
#include "worker/comm/communicator.h"
#include "worker/train/state_ring.h"

namespace sherd {

// Elements [begin, end) of what a rank owns of a unit that are updated alike.
struct UpdateSegment {
  int64_t begin = 0;
  int64_t end = 0;
  ParameterSettings settings;
};

// What a rank keeps of one unit for the whole job.
struct UnitMemory {
  // Elements of the padded unit that this rank updates; those of them that it answers for where
  // several ranks hold them, and writes; and of these, those whose squares it counts in the norm.
  ElementRange owned;
  std::vector<ElementRange> counted;
  std::vector<ElementRange> normed;
  // Stored parameters: (owned) elements when they are sharded, else (padded).
  std::byte* params = nullptr;
  // Where the (owned) ones of them begin.
  std::byte* owned_params = nullptr;
  // (owned) each: the state, and where the next update leaves it. The same without versions, and
  // then the master copies of fp32 parameters are these themselves.
  AdamWState state;
  AdamWState next;
  // (owned) each, of a device with memory of its own: what its updates read and write, while
  // `state` is its home on the host (docs/adr/0012). Null else; and where the state is offloaded,
  // but for fp32 parameters, which are their own master copies (docs/adr/0015).
  AdamWState device_state;
  // (padded), where gradients stay whole; nullptr else.
  std::byte* grads = nullptr;
  // Where the summed gradients of (owned) are once all are reduced; nullptr: where `tree` ends.
  // Where the tree is the host's and this is not, they have to be brought here.
  std::byte* owned_grads = nullptr;
  // Sums the gradients of micro-batches: this rank's shard of all of them where gradients are
  // scattered, or whole ones of its own rounds. nullptr when there is one round of whole gradients.
  std::unique_ptr<TreeAccumulator> tree;
  std::vector<UpdateSegment> segments;
};

// A whole-unit gradient buffer that is written by a backward and then read by peers.
struct GradientSlot {
  std::byte* data = nullptr;
  // The last reduction that reads it; 0 when none does.
  Ticket reduction = 0;
};

// Memory that others read in place: those that share the rank's shards, the holders of copies of
// them, and the members of its tensor-parallel group that share gradients with it (nullptr where
// there are none).
struct RankArenas {
  std::byte* sharers = nullptr;
  std::byte* replicas = nullptr;
  std::byte* tensor = nullptr;
  std::byte* kv_copies = nullptr;
  // Where the device's computation is enqueued, if the sharers' communicator sums gradients in
  // memory of the device; nullptr: trees are the host's.
  DeviceStream* sums = nullptr;
};

// Where versions of the rank's shard are kept, VersionBytes(plan) each: the first is updated into
// the second, then that into the first. nullptr without versions.
struct VersionSlots {
  std::byte* current = nullptr;
  std::byte* next = nullptr;
  // Of all that they are kept in.
  int64_t bytes = 0;
};

// All model memory of a rank, placed as the strategy's row says: what peers read in place lies in
// the communicator's arena. Counted in `meter`, which must outlive it, and of whose device it is.
// Not thread-safe.
class RankMemory {
 public:
  // The arenas have ArenaBytes(plan), ReplicaArenaBytes(plan), and ShareBytes(plan, …) bytes.
  // `accelerator` is the meter's device, null when that is none. Without memory, which the device's
  // status then says, nothing here may be touched.
  RankMemory(const RankPlan& plan, const RankArenas& arenas, const VersionSlots& versions,
             MemoryMeter& meter, Accelerator* accelerator = nullptr);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;

  UnitMemory& unit(int index) { return units_[static_cast<size_t>(index)]; }
  DType param_type() const { return param_type_; }
  DType grad_type() const { return grad_type_; }
  // As RankArenas': that trees are finished on.
  DeviceStream* sums() const { return sums_; }
  // What offloaded state passes through on the device; null where state is not offloaded.
  StateRing* ring() const { return ring_.get(); }

  // Where the gradients of the first unit begin. Before they are written their memory is others'
  // (RoomIn, plan/ledger.h), so padding may hold anything.
  std::byte* gradients() const { return gradients_; }

  // Room (padded elements) for a unit's gathered parameters until it is freed.
  std::byte* AcquireGathered(int unit);
  void FreeGathered(int unit);
  // The buffer that this unit's backward writes next; blocks take turns.
  GradientSlot& NextGradientSlot(int unit);
  // Where shares of a unit's gradients are summed over `members` of the tensor-parallel group.
  std::byte* shares(int members) const {
    return members == tensor_degree_ ? tensor_.begin : kv_copies_.begin;
  }

 private:
  struct Arena {
    std::byte* begin;
    int64_t used = 0;
  };
  std::byte* TakeArena(Arena& arena, Pool pool, int64_t bytes, int64_t padding = 0);
  std::byte* TakeOwn(Pool pool, int64_t bytes, int64_t padding = 0);
  bool has_own_memory() const { return meter_.device() != nullptr; }
  TreeAccumulator::Side side_of_sums() const {
    return sums_ == nullptr ? TreeAccumulator::Side::kHost : TreeAccumulator::Side::kDevice;
  }
  bool offloads(const RankPlan& plan) const { return has_own_memory() && plan.offloads; }
  // Counts memory that is not ours as if it were.
  void Count(Pool pool, int64_t bytes, MemoryMeter::Side side = MemoryMeter::Side::kDevice);
  void PlaceVersions(const VersionSlots& versions);
  void PlaceState(const RankPlan& plan, int index);
  // Takes memory for the sums of scattered gradients of all units.
  void PlaceSums(const RankPlan& plan);
  // What a device with memory of its own updates, and without versions its home on the host.
  void PlaceDeviceState(const RankPlan& plan, UnitMemory& unit, int64_t padding);
  // The home of offloaded state, and of fp32 parameters what the device has of it anyway.
  void PlaceOffloadedState(const RankPlan& plan, UnitMemory& unit, int64_t padding);
  void PlaceRing(const RankPlan& plan, const VersionSlots& versions);
  void PlaceGradients(const RankPlan& plan, int index);
  void PlaceTransient(const RankPlan& plan);

  MemoryMeter& meter_;
  Accelerator* const accelerator_;
  const DType param_type_;
  const DType grad_type_;
  const int last_unit_;
  Arena sharers_;
  Arena replicas_;
  Arena tensor_;
  Arena kv_copies_;
  DeviceStream* const sums_;
  const int tensor_degree_;
  // In arenas, and in slots, by side.
  int64_t foreign_by_pool_[2][kPools] = {};
  int64_t updated_bytes_ = 0;  // of the version that is updated, as counted by unit
  std::vector<Buffer> buffers_;
  std::vector<std::byte*> locked_slots_;
  std::vector<UnitMemory> units_;

  std::byte* gradients_ = nullptr;
  std::byte* next_sum_ = nullptr;  // where the next unit's is placed

  std::byte* gathered_embedding_ = nullptr;
  std::byte* gathered_head_ = nullptr;
  std::vector<std::byte*> free_gathered_blocks_;
  std::vector<std::byte*> gathered_;  // by unit; nullptr when not gathered

  GradientSlot embedding_slot_;
  GradientSlot head_slot_;
  std::vector<GradientSlot> block_slots_;
  size_t next_block_slot_ = 0;
  std::unique_ptr<StateRing> ring_;
};

}  // namespace sherd
