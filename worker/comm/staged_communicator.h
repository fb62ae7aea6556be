#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "worker/comm/communicator.h"
#include "worker/comm/operation_queue.h"

namespace sherd {

// Collectives of ranks whose memory is a device's, by a communicator of their hosts: what an
// operation reads is copied to the same place of that one's arena, and its result back, on a thread
// and a stream of their own beside computation. An operation sees what was enqueued on the device
// before it was called; its result is there when Wait returns. Reduction trees are the host's, as
// records of an exchange are; everything else is the device's.
//
// The first failure of the device ends the communicator as an abort does, and so does a device that
// does not come to an operation's turn within the time-out (kDeadlineExceeded). An abort ends a
// wait for the device, too, but for a copy of kPieceBytes that is under way.
class StagedCommunicator final : public Communicator {
 public:
  struct Options {
    // For what was enqueued on the device before an operation.
    absl::Duration operation_timeout = absl::Minutes(10);
    // The most that an all-gather brings elsewhere than into the arena, of all members.
    int64_t gathered_bytes = 0;
  };
  // At most so much goes to or from the device between two looks at whether the operation is to
  // end.
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;

  // `host` and `device` as from Form and Open. kResourceExhausted when the device has no memory for
  // the arena. The device outlives the communicator.
  static absl::StatusOr<std::unique_ptr<Communicator>> Make(std::unique_ptr<Communicator> host,
                                                            Device& device, const Options& options);
  ~StagedCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  absl::string_view transport() const override { return host_->transport(); }
  std::byte* arena() const override { return arena_.get(); }
  int64_t arena_bytes() const override { return host_->arena_bytes(); }
  int64_t control_bytes() const override {
    return host_->control_bytes() + host_->arena_bytes() + static_cast<int64_t>(gathered_.size());
  }

  Ticket AllGather(const void* shard, void* gathered, int64_t bytes) override;
  Ticket ReduceScatter(const void* input, int contributors, TreeAccumulator* into) override;
  Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                              int contributors) override;
  Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) override;
  Ticket Broadcast(void* data, int64_t bytes, int root) override;
  Ticket Barrier() override;
  Ticket Exchange(const void* record, void* records, int64_t bytes) override;
  absl::Status Wait(Ticket ticket) override { return queue_.Wait(ticket); }
  void Abort(absl::string_view reason) override;

  std::vector<int> missing() const override { return host_->missing(); }
  absl::Status status() const override;
  WireCounts counts() const override { return host_->counts(); }
  int ended_by() const override { return host_->ended_by(); }

 private:
  // Gives memory back to where it is from.
  struct Giver {
    MemorySource* source;
    void operator()(std::byte* memory) const { source->Give(memory); }
  };

  StagedCommunicator(std::unique_ptr<Communicator> host, Device& device, std::byte* arena,
                     const Options& options)
      : host_(std::move(host)),
        device_(device),
        operation_timeout_(options.operation_timeout),
        arena_(arena, Giver{device.memory()}),
        gathered_(static_cast<size_t>(options.gathered_bytes)) {}

  // Runs `operation` on the queue's thread behind all that is enqueued on the device now.
  Ticket Enqueue(Collective collective, std::function<absl::Status()> operation);
  bool InArena(const void* data, int64_t bytes) const;
  // The place in the host's arena of what lies in the device's.
  std::byte* Twin(const void* data, int64_t bytes) const;

  // On the queue's thread. Waits for what was enqueued on the device before an operation.
  absl::Status AwaitPassed(DeviceMark& mark, Collective collective) const;
  // One side's bytes to the other's.
  absl::Status Fetch(const void* data, int64_t bytes);
  absl::Status Deliver(void* data, int64_t bytes) {
    return Deliver(data, Twin(data, bytes), bytes);
  }
  absl::Status Deliver(void* to, const std::byte* from, int64_t bytes);

  const std::unique_ptr<Communicator> host_;
  Device& device_;
  const absl::Duration operation_timeout_;
  const std::unique_ptr<std::byte[], Giver> arena_;
  std::vector<std::byte> gathered_;  // of the queue's thread
  OperationQueue queue_;             // the last: its operations touch all of these
};

}  // namespace sherd
