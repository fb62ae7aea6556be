#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "worker/comm/tree_accumulator.h"

namespace sherd {

enum class Collective : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kBarrier,
  kExchange
};
inline constexpr int kCollectives = 6;
// "all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier", "exchange".
absl::string_view NameOf(Collective collective);

// Upper bounds, in seconds, of the classes that calls are counted in by how long they took.
inline constexpr std::array<double, 10> kCallSeconds = {1e-5, 4e-5, 1.6e-4, 6.4e-4, 2.56e-3,
                                                        0.01, 0.04, 0.16,   0.64,   2.56};

// Bytes that this rank sent (peers took from its arena), counted where they move, and calls
// completed.
struct WireCount {
  int64_t bytes = 0;
  int64_t messages = 0;
  int64_t calls = 0;
  // From the start of the operation on the communicator's thread to its end, summed over calls.
  double seconds = 0;
  // Calls by class; the last one has no bound.
  std::array<int64_t, kCallSeconds.size() + 1> by_seconds = {};

  // One more call.
  void Count(double taken) {
    ++calls;
    seconds += taken;
    ++by_seconds[static_cast<size_t>(
        std::lower_bound(kCallSeconds.begin(), kCallSeconds.end(), taken) - kCallSeconds.begin())];
  }
};
using WireCounts = std::array<WireCount, kCollectives>;

// Names an enqueued operation; operations of one communicator complete in the order of their
// tickets.
using Ticket = uint64_t;

// One process group's collectives. Every member calls the same operations with the same sizes in
// the same order; a mismatch ends the communicator on every rank with kFailedPrecondition naming
// rank and operation. Operations are enqueued and run one after another on the communicator's own
// thread; they see what the caller wrote before enqueuing. Buffers stay untouched by the caller
// until Wait returns.
//
// `dtype` counts elements; sizes may be 0 and odd. Reductions sum over ranks [0, contributors) by
// the binary tree over the rank (tree_accumulator.h); other ranks take part and contribute nothing.
//
// Errors of Wait: kAborted after Abort (with Abort's message), kUnavailable "rank R …: its process
// went away" when a peer died, kDeadlineExceeded naming operation, number and the missing ranks
// when nothing arrives for the communicator's time-out. After the first error every operation
// returns it, all within 500 ms. Thread-safe: Abort and counts from any thread; the rest from one
// thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What bytes move by: "shm", "tcp", "nccl".
  virtual absl::string_view transport() const = 0;

  // Zeroed memory (arena_bytes, 64-byte aligned) that peers may read in place, and where they may
  // write the result of an all-reduce. Inputs marked "arena" must lie in it.
  virtual std::byte* arena() const = 0;
  virtual int64_t arena_bytes() const = 0;
  // What this member holds beside its arena for the group.
  virtual int64_t control_bytes() const = 0;

  // gathered (size · bytes, anywhere) = every rank's shard (bytes, arena) in rank order.
  virtual Ticket AllGather(const void* shard, void* gathered, int64_t bytes) = 0;
  // Folds rank r's slice of every contributor's input (size · shard_elements, arena) into `into`,
  // in rank order. The input may be changed.
  virtual Ticket ReduceScatter(const void* input, int contributors, TreeAccumulator* into) = 0;
  // As ReduceScatter, once and without an accumulator: `data` (arena) is a row of segments, and
  // rank r's equal part of each becomes the sum over contributors; other parts stay. Segments count
  // elements, each a multiple of size().
  virtual Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                                      int contributors) = 0;
  // data (elements, arena) = the sum over contributors, on every rank.
  virtual Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) = 0;
  // data (bytes, arena) = root's data.
  virtual Ticket Broadcast(void* data, int64_t bytes, int root) = 0;
  virtual Ticket Barrier() = 0;
  // records (size · bytes) = every rank's record (bytes <= kMaxExchangeBytes, copied when
  // enqueued), anywhere.
  virtual Ticket Exchange(const void* record, void* records, int64_t bytes) = 0;
  static constexpr int64_t kMaxExchangeBytes = 64 << 10;

  // Blocks until the operation has ended. Seconds blocked here are the exposed communication time.
  virtual absl::Status Wait(Ticket ticket) = 0;
  // Ends every operation, waiting or to come, with kAborted and `reason`. Idempotent; the first
  // error wins.
  virtual void Abort(absl::string_view reason) = 0;

  // The members that the operation under way waits for, ascending; none when it does not wait, or
  // there is none. What is said may be a moment old. From any thread.
  virtual std::vector<int> missing() const = 0;

  // OK until the first error, then that. From any thread.
  virtual absl::Status status() const = 0;
  virtual WireCounts counts() const = 0;
  // The other rank that the first error came from: because it went away, failed, aborted or passed
  // on what it had heard. -1 when there is no error or it is this rank's own. Known when a Wait has
  // failed.
  virtual int ended_by() const = 0;
};

}  // namespace sherd
