#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plan/wire.h"
#include "worker/comm/communicator.h"
#include "worker/comm/nccl/nccl_epoch.h"

namespace sherd {

// By group.
using GroupCounts = std::array<WireCounts, kWireGroups>;

// `error`, of a group of these ranks of the job; with them where they have other numbers in it.
absl::Status WithRanks(const absl::Status& error, const std::vector<int>& ranks);

// A rank's process groups as communicators: the ranks that share its shards; under hybrid sharding
// those that hold copies of the same shards; its tensor-parallel group; and the members of that
// with the same head of keys and values. The world is made of data × tensor ranks, tensor-parallel
// groups are adjacent ranks, and rank d of a data-parallel group has place d mod K among K sharers
// and d / K among the holders of copies. Thread-safe as Communicator.
class RankMesh {
 public:
  // One group and, by place in it, the ranks of the world.
  struct Axis {
    std::unique_ptr<Communicator> comm;
    std::vector<int> ranks;
    // What it holds beside its arena, and what it sums into, is memory of the device.
    bool on_device = false;
  };
  struct Axes {
    // Of those that are over NCCL, which it outlives; null: none is.
    std::unique_ptr<NcclEpoch> nccl;
    Axis sharers;
    // Without a communicator where there is nobody else.
    Axis replicas;
    Axis tensor;
    Axis kv_copies;
  };
  explicit RankMesh(Axes axes);

  // In the world.
  int rank() const;
  int size() const;
  // Of the data-parallel group.
  int data_size() const;
  Communicator& sharers() const { return *axes_.sharers.comm; }
  Communicator* replicas() const { return axes_.replicas.comm.get(); }
  Communicator* tensor() const { return axes_.tensor.comm.get(); }
  // The members of the tensor-parallel group, `members` of them, that share gradients: all, or
  // those with the same head of keys and values.
  Communicator& Sharing(int members) const;

  // records (size() · bytes) = every rank's record, in rank order. Blocks, with the errors of
  // Communicator::Wait.
  absl::Status Exchange(const void* record, void* records, int64_t bytes);
  // Blocks until every rank of the world has come here.
  absl::Status Barrier();

  // From any thread: somebody is in Exchange or Barrier.
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  // From any thread: the ranks that operations under way wait for, ascending.
  std::vector<int> missing() const;

  // Returns when no operation on any axis is under way. After an error or Abort.
  void AwaitQuiet();

  // OK until the first error on an axis: what fails there must end the others too.
  absl::Status status() const;
  // Ends every operation on every axis.
  void Abort(absl::string_view reason);
  // The rank from which `error` came, when it is in the words of an axis's first error that came
  // from another (Communicator::ended_by); else -1.
  int ended_by(const absl::Status& error) const;
  // `error`; when it is an axis's, WithRanks.
  absl::Status Explain(const absl::Status& error) const;
  // By group (WireGroup).
  GroupCounts counts_by_group() const;
  // What bytes of a group move by, as Communicator::transport; "" of one that there is not.
  std::array<absl::string_view, kWireGroups> transports() const;
  // What the communicators hold beside their arenas, of the host and of a device.
  int64_t control_bytes() const { return ControlBytes(/*on_device=*/false); }
  int64_t device_control_bytes() const { return ControlBytes(/*on_device=*/true); }
  int64_t arena_bytes() const;
  // Where the sharers' communicator sums gradients.
  bool sums_on_device() const { return axes_.sharers.on_device; }

 private:
  int64_t ControlBytes(bool on_device) const;
  // In the order of all().
  std::array<WireGroup, 4> wire_groups() const;
  // In the order of an exchange.
  std::array<const Axis*, 4> all() const {
    return {&axes_.sharers, &axes_.replicas, &axes_.tensor, &axes_.kv_copies};
  }
  // The axis whose first error, in its words, `error` is; null when it is none's.
  const Axis* SourceOf(const absl::Status& error) const;
  static int SizeOf(const Axis& axis) { return axis.comm == nullptr ? 1 : axis.comm->size(); }
  static int PlaceOf(const Axis& axis) { return axis.comm == nullptr ? 0 : axis.comm->rank(); }

  const Axes axes_;
  std::atomic<bool> waiting_{false};
};

}  // namespace sherd
