// What NcclCommunicator's operations enqueue on the device.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/comm/stream_tree.h"
#include "worker/comm/tree_accumulator.h"

namespace sherd {
namespace {

std::byte* Bytes(void* data) { return static_cast<std::byte*>(data); }

// The first error of calls made one after another; non-blocking calls may be in progress.
class FirstError {
 public:
  void operator()(NcclResult result) {
    const bool failed = result != NcclResult::kSuccess && result != NcclResult::kInProgress;
    if (failed && first_ == NcclResult::kSuccess) first_ = result;
  }
  NcclResult result() const { return first_; }

 private:
  NcclResult first_ = NcclResult::kSuccess;
};

// A message to, or from, one peer in a group of sends and receives.
struct Message {
  int peer = -1;
  std::byte* data = nullptr;
  int64_t elements = 0;
};

NcclResult SendAndReceive(NcclApi& api, const std::vector<Message>& out,
                          const std::vector<Message>& in, NcclType type, NcclComm comm,
                          CUstream_st* stream) {
  FirstError error;
  for (const Message& message : out) {
    error(api.Send(message.data, static_cast<size_t>(message.elements), type, message.peer, comm,
                   stream));
  }
  for (const Message& message : in) {
    error(api.Recv(message.data, static_cast<size_t>(message.elements), type, message.peer, comm,
                   stream));
  }
  return error.result();
}

}  // namespace

bool NcclCommunicator::native(const OpDescriptor& op) const {
  return !options_.reproducible && op.contributors == size();
}

Ticket NcclCommunicator::AllGather(const void* shard, void* gathered, int64_t bytes) {
  CheckInArena(shard, bytes);
  const WireCount sent{.bytes = others() * bytes, .messages = bytes > 0 ? others() : 0};
  return EnqueueOp({.collective = Collective::kAllGather, .count = bytes}, sent,
                   [this, shard, gathered, bytes](const Run& run) {
                     if (bytes == 0) return absl::OkStatus();
                     return Launch(run, [=](NcclApi& api, NcclComm comm, CUstream_st* stream) {
                       return api.AllGather(shard, gathered, static_cast<size_t>(bytes),
                                            NcclType::kByte, comm, stream);
                     });
                   });
}

Ticket NcclCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  SHERD_CHECK(root >= 0 && root < size());
  CheckInArena(data, bytes);
  const bool sends = rank_ == root && bytes > 0;
  const WireCount sent{.bytes = sends ? others() * bytes : 0, .messages = sends ? others() : 0};
  return EnqueueOp({.collective = Collective::kBroadcast, .count = bytes, .root = root}, sent,
                   [this, data, bytes, root](const Run& run) {
                     if (bytes == 0) return absl::OkStatus();
                     return Launch(run, [=](NcclApi& api, NcclComm comm, CUstream_st* stream) {
                       return api.Broadcast(data, data, static_cast<size_t>(bytes), NcclType::kByte,
                                            root, comm, stream);
                     });
                   });
}

absl::Status NcclCommunicator::ExchangeLeaves(const Run& run, int64_t elements,
                                              const std::function<Leaf(int peer)>& leaf_of) {
  std::vector<Message> out;
  std::vector<Message> in;
  operations_.ForEachPeer([&](int peer) {
    const Leaf leaf = rank_ < run.op.contributors ? leaf_of(peer) : Leaf{};
    if (leaf.elements > 0) {
      out.push_back({peer, const_cast<std::byte*>(leaf.data), leaf.elements});
    }
    if (peer < run.op.contributors && elements > 0) in.push_back({peer, StagingOf(peer), elements});
  });
  if (out.empty() && in.empty()) return absl::OkStatus();
  return Launch(run, [out = std::move(out), in = std::move(in), type = NcclTypeOf(run.op.dtype)](
                         NcclApi& api, NcclComm comm, CUstream_st* stream) {
    return SendAndReceive(api, out, in, type, comm, stream);
  });
}

std::vector<void*> NcclCommunicator::Leaves(const OpDescriptor& op, std::byte* own) const {
  std::vector<void*> leaves;
  for (int rank = 0; rank < op.contributors; ++rank) {
    leaves.push_back(rank == rank_ ? own : StagingOf(rank));
  }
  return leaves;
}

void NcclCommunicator::SumPiece(const OpDescriptor& op, std::byte* own, int64_t elements) {
  if (elements == 0) return;
  StreamTree tree(*stream_, op.dtype);
  tree.Begin(elements);
  for (void* leaf : Leaves(op, own)) tree.AddWritable(leaf);
  tree.SumInto(own);
}

Ticket NcclCommunicator::ReduceScatter(const void* input, int contributors, TreeAccumulator* into) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  const int64_t slice = into->elements();
  const int64_t element_bytes = SizeOf(into->dtype());
  CheckInArena(input, size() * slice * element_bytes);
  const bool sends = rank_ < contributors && slice > 0;
  const WireCount sent{.bytes = sends ? others() * slice * element_bytes : 0,
                       .messages = sends ? others() : 0};
  auto* const slices = Bytes(const_cast<void*>(input));
  const OpDescriptor op{.collective = Collective::kReduceScatter,
                        .dtype = into->dtype(),
                        .count = slice,
                        .contributors = contributors};
  return EnqueueOp(op, sent, [=, this](const Run& run) -> absl::Status {
    const OpDescriptor& op = run.op;
    if (op.contributors == 0) return absl::OkStatus();
    std::byte* const own = slices + rank_ * slice * element_bytes;
    if (!options_.reproducible) {
      // The sum takes the place of the own slice, and is added in place.
      SHERD_RETURN_IF_ERROR(SumParts(run, slices, {{0, size() * slice}}));
      into->FoldSum(*stream_, own, op.contributors);
      return absl::OkStatus();
    }
    into->BeginFold(op.contributors);
    const int64_t step = piece_elements(op.dtype);
    for (int64_t first = 0; first < slice; first += step) {
      const int64_t elements = std::min(step, slice - first);
      SHERD_RETURN_IF_ERROR(ExchangeLeaves(run, elements, [&](int peer) {
        return Leaf{slices + (peer * slice + first) * element_bytes, elements};
      }));
      StreamTree tree(*stream_, op.dtype);
      into->FoldRange(tree, Leaves(op, own + first * element_bytes), rank_, first, elements);
    }
    into->EndFold();
    return absl::OkStatus();
  });
}

absl::Status NcclCommunicator::SumParts(const Run& run, std::byte* data,
                                        const std::vector<Chunk>& wholes) {
  const OpDescriptor& op = run.op;
  const int64_t element_bytes = SizeOf(op.dtype);
  if (native(op)) {
    return Launch(run, [=, ranks = size(), rank = rank_, type = NcclTypeOf(op.dtype)](
                           NcclApi& api, NcclComm comm, CUstream_st* stream) {
      FirstError error;
      for (const Chunk& whole : wholes) {
        const int64_t part = whole.elements() / ranks;
        std::byte* const begin = data + whole.begin * element_bytes;
        if (part == 0) continue;
        error(api.ReduceScatter(begin, begin + rank * part * element_bytes,
                                static_cast<size_t>(part), type, comm, stream));
      }
      return error.result();
    });
  }
  for (const Chunk& whole : wholes) {
    const int64_t part = whole.elements() / size();
    const auto place_of = [&](int rank, int64_t first) {
      return data + (whole.begin + rank * part + first) * element_bytes;
    };
    const int64_t step = piece_elements(op.dtype);
    for (int64_t first = 0; first < part; first += step) {
      const int64_t elements = std::min(step, part - first);
      SHERD_RETURN_IF_ERROR(ExchangeLeaves(run, elements, [&](int peer) {
        return Leaf{place_of(peer, first), elements};
      }));
      SumPiece(op, place_of(rank_, first), elements);
    }
  }
  return absl::OkStatus();
}

Ticket NcclCommunicator::ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments,
                                              DType dtype, int contributors) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  std::vector<Chunk> wholes;
  int64_t elements = 0;
  for (const int64_t segment : segments) {
    SHERD_CHECK(segment >= 0 && segment % size() == 0);
    wholes.push_back({elements, elements + segment});
    elements += segment;
  }
  CheckInArena(data, elements * SizeOf(dtype));
  const bool sends = rank_ < contributors && elements > 0;
  const WireCount sent{.bytes = sends ? others() * (elements / size()) * SizeOf(dtype) : 0,
                       .messages = sends ? others() : 0};
  const OpDescriptor op{.collective = Collective::kReduceScatter,
                        .dtype = dtype,
                        .count = elements,
                        .segments = static_cast<int32_t>(segments.size()),
                        .contributors = contributors};
  return EnqueueOp(op, sent, [this, data, wholes = std::move(wholes)](const Run& run) {
    return SumParts(run, Bytes(data), wholes);
  });
}

// As it goes where leaves are sent; NCCL's own reduction sends as much on a ring.
WireCount NcclCommunicator::SentByAllReduce(const OpDescriptor& op) const {
  const int64_t own = ChunkOf(op.count, size(), rank_).elements();
  WireCount sent;
  operations_.ForEachPeer([&](int peer) {
    const int64_t leaf = rank_ < op.contributors ? ChunkOf(op.count, size(), peer).elements() : 0;
    sent.bytes += (leaf + own) * SizeOf(op.dtype);
    sent.messages += (leaf > 0 ? 1 : 0) + (own > 0 ? 1 : 0);
  });
  return sent;
}

Ticket NcclCommunicator::AllReduce(void* data, int64_t elements, DType dtype, int contributors) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  CheckInArena(data, elements * SizeOf(dtype));
  const OpDescriptor op{.collective = Collective::kAllReduce,
                        .dtype = dtype,
                        .count = elements,
                        .contributors = contributors};
  return EnqueueOp(op, SentByAllReduce(op), [this, data](const Run& run) -> absl::Status {
    const OpDescriptor& op = run.op;
    if (op.count == 0) return absl::OkStatus();
    if (native(op)) {
      return Launch(run, [=, count = static_cast<size_t>(op.count), type = NcclTypeOf(op.dtype)](
                             NcclApi& api, NcclComm comm, CUstream_st* stream) {
        return api.AllReduce(data, data, count, type, comm, stream);
      });
    }
    SHERD_RETURN_IF_ERROR(SumChunks(run, Bytes(data)));
    return GatherChunks(run, Bytes(data));
  });
}

absl::Status NcclCommunicator::SumChunks(const Run& run, std::byte* data) {
  const OpDescriptor& op = run.op;
  const int64_t element_bytes = SizeOf(op.dtype);
  const int64_t step = piece_elements(op.dtype);
  // Of the piece that begins so far into a rank's chunk.
  const auto piece_of = [&](int rank, int64_t first) {
    const Chunk chunk = ChunkOf(op.count, size(), rank);
    const int64_t begin = std::min(chunk.begin + first, chunk.end);
    return Chunk{begin, std::min(begin + step, chunk.end)};
  };
  // Chunks differ by one element: all ranks take the same number of turns.
  const int64_t longest = (op.count + size() - 1) / size();
  for (int64_t first = 0; first < longest; first += step) {
    const Chunk own = piece_of(rank_, first);
    SHERD_RETURN_IF_ERROR(ExchangeLeaves(run, own.elements(), [&](int peer) {
      const Chunk theirs = piece_of(peer, first);
      return Leaf{data + theirs.begin * element_bytes, theirs.elements()};
    }));
    SumPiece(op, data + own.begin * element_bytes, own.elements());
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::GatherChunks(const Run& run, std::byte* data) {
  const OpDescriptor& op = run.op;
  const auto chunk_of = [&](int rank) {
    const Chunk chunk = ChunkOf(op.count, size(), rank);
    return Message{-1, data + chunk.begin * SizeOf(op.dtype), chunk.elements()};
  };
  std::vector<Message> out;
  std::vector<Message> in;
  operations_.ForEachPeer([&](int peer) {
    Message own = chunk_of(rank_);
    Message theirs = chunk_of(peer);
    own.peer = theirs.peer = peer;
    if (own.elements > 0) out.push_back(own);
    if (theirs.elements > 0) in.push_back(theirs);
  });
  if (out.empty() && in.empty()) return absl::OkStatus();
  return Launch(run, [out = std::move(out), in = std::move(in), type = NcclTypeOf(op.dtype)](
                         NcclApi& api, NcclComm comm, CUstream_st* stream) {
    return SendAndReceive(api, out, in, type, comm, stream);
  });
}

}  // namespace sherd
