#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/device_stream.h"
#include "worker/comm/chunk.h"
#include "worker/comm/communicator.h"
#include "worker/comm/data_link.h"
#include "worker/comm/deadline.h"
#include "worker/comm/formation.h"
#include "worker/comm/nccl/nccl_epoch.h"
#include "worker/comm/nccl/nccl_memory.h"
#include "worker/comm/op_descriptor.h"
#include "worker/comm/stream_operations.h"

namespace sherd {

struct NcclOptions {
  // Reductions by the tree: leaves go to whom they are reduced by, all to all, and are summed there
  // in rank order, with the bits of the other communicators. Else by NCCL's own, in an order of its
  // choice, where all members contribute.
  bool reproducible = true;
  // Of a leaf, what goes at once where leaves are sent. A multiple of 4.
  int64_t piece_bytes = 4 << 20;
};

// Collectives of GPUs. The arena and everything that is reduced or gathered are device memory, also
// that of a TreeAccumulator; records of Exchange are the host's.
//
// Every operation begins on the hosts, as one without data (stream_operations.h): that all have
// come, and with the same call, is known before any GPU waits for another. Barrier and Exchange end
// there. The others then wait for what was enqueued on StreamDevice::compute() before them, go to a
// stream of the group's own in the order in which the epoch's groups were called, and end when the
// device has done them; the host polls for both, and for what NCCL finds out meanwhile, and never
// waits in a call. Seconds are the device's.
//
// The first error on any member ends the epoch's communicators of all (nccl_epoch.h).
class NcclCommunicator final : public Communicator {
 public:
  // Streams and events of a device for one group; errors of StreamDevice.
  struct DeviceSide {
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<DeviceEvent> cleared;
  };
  // `members` by rank: the own place is empty. Nothing but Join may be called before that is done.
  NcclCommunicator(NcclEpoch& epoch, int rank, std::vector<Member> members, NcclMemory memory,
                   DeviceSide device, absl::Duration operation_timeout, const NcclOptions& options);
  ~NcclCommunicator() override;

  // Makes the members one group of NCCL's, under an id that rank 0 makes for it. Blocks; `abort`
  // may be null. Errors of FormNcclCommunicator.
  absl::Status Join(const std::string& name, const Deadline& deadline, FormationAbort* abort);

  int rank() const override { return rank_; }
  int size() const override { return operations_.size(); }
  absl::string_view transport() const override { return "nccl"; }
  std::byte* arena() const override { return memory_.arena(); }
  int64_t arena_bytes() const override { return memory_.arena_bytes(); }
  int64_t control_bytes() const override { return memory_.staging_bytes(); }

  Ticket AllGather(const void* shard, void* gathered, int64_t bytes) override;
  Ticket ReduceScatter(const void* input, int contributors, TreeAccumulator* into) override;
  Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                              int contributors) override;
  Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) override;
  Ticket Broadcast(void* data, int64_t bytes, int root) override;
  Ticket Barrier() override { return operations_.Barrier(); }
  Ticket Exchange(const void* record, void* records, int64_t bytes) override {
    return operations_.Exchange(record, records, bytes);
  }
  absl::Status Wait(Ticket ticket) override { return operations_.Wait(ticket); }
  void Abort(absl::string_view reason) override { operations_.Abort(reason); }
  std::vector<int> missing() const override { return operations_.missing(); }
  absl::Status status() const override { return operations_.status(); }
  WireCounts counts() const override { return operations_.counts(); }
  int ended_by() const override { return operations_.ended_by(); }

 private:
  // Of an operation on the device; used again for later ones.
  struct Moments {
    std::unique_ptr<DeviceEvent> inputs;  // what was enqueued before it is done
    std::unique_ptr<DeviceEvent> begin;
    std::unique_ptr<DeviceEvent> end;
  };
  // An operation under way, on the queue's thread.
  struct Run {
    const OpDescriptor& op;
    Deadline deadline;
    absl::Duration patience;  // that the deadline gives, as errors tell
  };
  using Body = std::function<absl::Status(const Run& run)>;
  // The calls of one group.
  using Calls = std::function<NcclResult(NcclApi& api, NcclComm comm, CUstream_st* stream)>;

  // nccl_formation.cc. What members tell each other before they join; ids matter of rank 0 alone.
  struct Greeting {
    int32_t version = 0;
    int32_t reproducible = 0;
    int64_t piece_bytes = 0;
    NcclUniqueId id;
  };
  static std::string SettingsOf(const Greeting& greeting);
  // On the queue's thread, once all greetings are there.
  absl::Status JoinGroup(const std::vector<Greeting>& greetings, const std::string& name,
                         const Deadline& deadline);
  absl::Status ClearArena(const Deadline& deadline);

  // nccl_communicator.cc
  void CheckInArena(const void* data, int64_t bytes) const;
  // `sent`: what the operation counts when it is done.
  Ticket EnqueueOp(const OpDescriptor& op, const WireCount& sent, Body body);
  absl::StatusOr<Moments> TakeMoments() ABSL_LOCKS_EXCLUDED(moments_mutex_);

  // The following run on the queue's thread.
  absl::Status OnDevice(const OpDescriptor& op, const Moments& moments, const Body& body,
                        WireCount& moved);
  // Ends the epoch, unless it has ended, and returns when the device is done with what is under
  // way.
  absl::Status EndInFlight(const absl::Status& error, DeviceEvent& end);
  absl::Status Launch(const Run& run, Calls calls);
  // `what`: what the device is late with when the run's deadline passes.
  absl::Status AwaitPassed(const Run& run, const DeviceEvent& event, absl::string_view what);
  // The reason that another member gives for an error of NCCL or the device, or the error with the
  // operation's name.
  absl::Status Explain(const OpDescriptor& op, const absl::Status& error);
  // Waits a moment, unless the operations have ended.
  NcclEpoch::Patience patience() const;

  // nccl_collectives.cc
  int64_t others() const { return size() - 1; }
  // Whether NCCL's own reduction serves.
  bool native(const OpDescriptor& op) const;
  std::byte* StagingOf(int peer) const { return memory_.staging(peer < rank_ ? peer : peer - 1); }
  int64_t piece_elements(DType dtype) const { return memory_.piece_bytes() / SizeOf(dtype); }
  // A piece of `elements` of what this rank reduces comes from all contributors; to each peer its
  // piece goes, from `leaf_of(peer)` on, with no elements where there is none.
  struct Leaf {
    const std::byte* data = nullptr;
    int64_t elements = 0;
  };
  absl::Status ExchangeLeaves(const Run& run, int64_t elements,
                              const std::function<Leaf(int peer)>& leaf_of);
  // The contributors' leaves of a piece, `own` for the own, in rank order.
  std::vector<void*> Leaves(const OpDescriptor& op, std::byte* own) const;
  // Sums the piece that ExchangeLeaves brought into `own`, which holds the own leaf.
  void SumPiece(const OpDescriptor& op, std::byte* own, int64_t elements);
  // Of data in which every rank reduces equal parts of each of `wholes`: sums the own ones in
  // place.
  absl::Status SumParts(const Run& run, std::byte* data, const std::vector<Chunk>& wholes);
  // Of an all-reduce: sums the own chunk in place; gives it to all, and takes theirs.
  absl::Status SumChunks(const Run& run, std::byte* data);
  absl::Status GatherChunks(const Run& run, std::byte* data);
  WireCount SentByAllReduce(const OpDescriptor& op) const;

  NcclEpoch& epoch_;
  const int rank_;
  const NcclOptions options_;
  const absl::Duration operation_timeout_;
  NcclMemory memory_;
  const std::unique_ptr<DeviceStream> stream_;  // of the queue's thread
  const std::unique_ptr<DeviceEvent> cleared_;
  NcclComm comm_ = nullptr;  // of the queue's thread until it has ended
  absl::Mutex moments_mutex_;
  std::vector<Moments> idle_moments_ ABSL_GUARDED_BY(moments_mutex_);
  StreamOperations operations_;  // last: its thread uses the others
  int listener_ = 0;
};

// Forms a communicator over NCCL: as FormCommunicator over TCP, by whose links and with whose
// errors, then as a group of NCCL's under a new id. Addresses are network_address()es;
// `options.transport` means nothing. Members must agree on `nccl`. More errors: what stops NCCL
// from coming about (nccl_epoch.h), kFailedPrecondition when members have different settings or
// versions of it.
// What ends it once the links are there ends the epoch. LostMemberOf tells whose error it was, as
// ended_by does.
absl::StatusOr<std::unique_ptr<Communicator>> FormNcclCommunicator(
    NcclEpoch& epoch, DataListener& listener, const GroupSpec& group, const FormOptions& options,
    const NcclOptions& nccl, FormationAbort* abort);

}  // namespace sherd
