#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/memory.h"
#include "worker/comm/communicator.h"
#include "worker/comm/tree_accumulator.h"

namespace sherd {

struct BufferRange {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;

  bool Overlaps(const BufferRange& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
  size_t Hash() const {
    return absl::HashOf(
        absl::string_view(reinterpret_cast<const char*>(begin), static_cast<size_t>(bytes)));
  }
};

// One rank of a group whose other ranks send just what this one sends; sums are of floats. It is as
// late as it may be: an operation moves its data only when somebody waits for it or a later one.
class LateCommunicator final : public Communicator {
 public:
  LateCommunicator(int rank, int size, int64_t arena_bytes)
      : rank_(rank), size_(size), arena_(meter_, Pool::kComm, arena_bytes) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::string_view transport() const override { return "shm"; }
  std::byte* arena() const override { return arena_.data(); }
  int64_t arena_bytes() const override { return arena_.bytes(); }
  int64_t control_bytes() const override { return 0; }

  Ticket AllGather(const void* shard, void* gathered, int64_t bytes) override {
    const BufferRange from = InArena(shard, bytes);
    auto* const to = static_cast<std::byte*>(gathered);
    // In place, the own shard is both.
    const bool in_place = from.begin == to + rank_ * bytes;
    return Enqueue(Collective::kAllGather, from, {to, size_ * bytes}, [=, this] {
      for (int rank = 0; rank < size_; ++rank) {
        if (in_place && rank == rank_) continue;
        std::memcpy(to + rank * bytes, from.begin, static_cast<size_t>(bytes));
      }
    });
  }
  Ticket ReduceScatter(const void* input, int contributors, TreeAccumulator* into) override {
    const int64_t bytes = into->elements() * SizeOf(into->dtype());
    const BufferRange from = InArena(input, size_ * bytes);
    return Enqueue(Collective::kReduceScatter, from, {}, [=, this] {
      into->Fold(
          std::vector<const void*>(static_cast<size_t>(contributors), from.begin + rank_ * bytes));
    });
  }
  Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                              int contributors) override {
    std::vector<int64_t> owned(segments.begin(), segments.end());
    const BufferRange range =
        InArena(data, std::accumulate(owned.begin(), owned.end(), int64_t{0}) * SizeOf(dtype));
    auto* const values = static_cast<float*>(data);
    return Enqueue(Collective::kReduceScatter, range, range, [=, this] {
      int64_t begin = 0;
      for (const int64_t segment : owned) {
        const int64_t part = segment / size_;
        for (int64_t i = 0; i < part; ++i) {
          values[begin + rank_ * part + i] *= static_cast<float>(contributors);
        }
        begin += segment;
      }
    });
  }
  Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) override {
    const BufferRange range = InArena(data, elements * SizeOf(dtype));
    auto* const values = static_cast<float*>(data);
    return Enqueue(Collective::kAllReduce, range, range, [=] {
      for (int64_t i = 0; i < elements; ++i) values[i] *= static_cast<float>(contributors);
    });
  }
  Ticket Broadcast(void*, int64_t, int) override { return Enqueue(Collective::kBroadcast); }
  Ticket Barrier() override { return Enqueue(Collective::kBarrier); }
  Ticket Exchange(const void* record, void* records, int64_t bytes) override {
    for (int rank = 0; rank < size_; ++rank) {
      std::memcpy(static_cast<std::byte*>(records) + rank * bytes, record,
                  static_cast<size_t>(bytes));
    }
    return Enqueue(Collective::kExchange);
  }

  absl::Status Wait(Ticket ticket) override {
    for (; completed_ < ticket; ++completed_) {
      const Operation& operation = operations_[completed_];
      // F8: nobody wrote to what others were reading.
      EXPECT_EQ(operation.read.Hash(), operation.hash) << NameOf(operation.collective);
      operation.move();
    }
    return absl::OkStatus();
  }
  void Abort(absl::string_view) override {}
  absl::Status status() const override { return absl::OkStatus(); }
  WireCounts counts() const override { return {}; }
  int ended_by() const override { return -1; }
  std::vector<int> missing() const override { return {}; }

  // F8: what the caller may not do while operations are under way.
  void ExpectReadable(const BufferRange& range, const std::string& what) const {
    ForEachPending([&](const Operation& operation) {
      EXPECT_FALSE(operation.written.Overlaps(range)) << what << " reads what arrives later";
    });
  }
  void ExpectWritable(const BufferRange& range, const std::string& what) const {
    ForEachPending([&](const Operation& operation) {
      EXPECT_FALSE(operation.read.Overlaps(range)) << what << " writes what others read";
      EXPECT_FALSE(operation.written.Overlaps(range)) << what << " writes what arrives later";
    });
  }
  int Pending(Collective collective) const {
    int count = 0;
    ForEachPending([&](const Operation& operation) {
      if (operation.collective == collective) ++count;
    });
    return count;
  }

 private:
  struct Operation {
    Collective collective;
    BufferRange read;
    BufferRange written;
    std::function<void()> move;
    size_t hash;
  };

  BufferRange InArena(const void* data, int64_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(data);
    EXPECT_TRUE(bytes == 0 ||
                (begin >= arena_.data() && begin + bytes <= arena_.data() + arena_.bytes()));
    return {begin, bytes};
  }
  Ticket Enqueue(
      Collective collective, BufferRange read = {}, BufferRange written = {},
      std::function<void()> move = [] {}) {
    ExpectReadable(read, absl::StrCat("a later ", std::string(NameOf(collective))));
    operations_.push_back({collective, read, written, std::move(move), read.Hash()});
    return operations_.size();
  }
  void ForEachPending(const std::function<void(const Operation&)>& visit) const {
    for (size_t at = completed_; at < operations_.size(); ++at) visit(operations_[at]);
  }

  const int rank_;
  const int size_;
  MemoryMeter meter_;
  Buffer arena_;
  std::vector<Operation> operations_;
  size_t completed_ = 0;
};

}  // namespace sherd
