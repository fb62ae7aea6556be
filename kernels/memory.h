#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace sherd {

// What a byte of device memory is for; the lines of the memory ledger.
enum class Pool : uint8_t {
  kParams,
  kGrads,
  kOptimizer,
  kPadding,  // what the three above hold beyond the model's elements, so that shards are equal
  kAccumulators,
  kGathered,
  kActivations,
  kComm,
  kStaging,
  kScratch,  // what kernels work in, of all threads
  kReplicas  // copies of the rank's state beside the one that is updated: stored, or being saved
};
inline constexpr int kPools = 11;
// "params", "grads", "optimizer", "padding", "accumulators", "gathered", "activations", "comm",
// "staging", "scratch", "replicas".
const char* NameOf(Pool pool);

// Counts bytes where they are allocated. Knows nothing of what was predicted. Thread-safe.
class MemoryMeter {
 public:
  void Allocated(Pool pool, int64_t bytes);
  void Freed(Pool pool, int64_t bytes);
  int64_t current(Pool pool) const { return current_[Index(pool)].load(std::memory_order_relaxed); }
  int64_t peak(Pool pool) const { return peak_[Index(pool)].load(std::memory_order_relaxed); }
  // The highest sum over all pools at one moment.
  int64_t peak_total() const { return peak_total_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t Index(Pool pool) { return static_cast<size_t>(pool); }
  std::array<std::atomic<int64_t>, kPools> current_{};
  std::array<std::atomic<int64_t>, kPools> peak_{};
  std::atomic<int64_t> total_{0};
  std::atomic<int64_t> peak_total_{0};
};

// Owns 64-byte-aligned, zeroed host memory counted in a meter, which must outlive it. Freeing
// returns the pages to the operating system at once for large buffers (mmap above 1 MiB).
class Buffer {
 public:
  Buffer() = default;
  // `padding` of the bytes count under Pool::kPadding.
  Buffer(MemoryMeter& meter, Pool pool, int64_t bytes, int64_t padding = 0);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  void swap(Buffer& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(padding_, other.padding_);
  }

 private:
  MemoryMeter* meter_ = nullptr;
  Pool pool_ = Pool::kParams;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t padding_ = 0;
};

}  // namespace sherd
