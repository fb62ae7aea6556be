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

// Where buffers of a device with memory of its own come from. Thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Zeroed, before whatever is enqueued later reads it; 256-byte aligned; until Give. Null when
  // there is none, which the device's status then says; and for no bytes.
  virtual std::byte* Take(Pool pool, int64_t bytes) = 0;
  // What was enqueued may still use it. Null is allowed.
  virtual void Give(std::byte* memory) = 0;
};

// Counts bytes where they are allocated. Knows nothing of what was predicted. Thread-safe.
class MemoryMeter {
 public:
  // Of a device whose memory, from `device`, is what buffers are of unless they say otherwise;
  // null: the host's. `device` outlives the buffers.
  explicit MemoryMeter(MemorySource* device = nullptr) : device_(device) {}
  MemorySource* device() const { return device_; }

  // Whose memory. Without a device all is the host's, and counts as kDevice.
  enum class Side : uint8_t { kDevice, kHost };
  void Allocated(Pool pool, int64_t bytes, Side side = Side::kDevice);
  void Freed(Pool pool, int64_t bytes, Side side = Side::kDevice);
  // Of both sides.
  int64_t current(Pool pool) const { return all_.Current(pool); }
  int64_t peak(Pool pool) const { return all_.Peak(pool); }
  // The highest sum over all pools at one moment.
  int64_t peak_total() const { return all_.PeakTotal(); }
  // Of one.
  int64_t peak(Pool pool, Side side) const { return of(side).Peak(pool); }
  int64_t peak_total(Side side) const { return of(side).PeakTotal(); }

 private:
  class Counts {
   public:
    void Add(Pool pool, int64_t bytes);
    int64_t Current(Pool pool) const {
      return current_[static_cast<size_t>(pool)].load(std::memory_order_relaxed);
    }
    int64_t Peak(Pool pool) const {
      return peak_[static_cast<size_t>(pool)].load(std::memory_order_relaxed);
    }
    int64_t PeakTotal() const { return peak_total_.load(std::memory_order_relaxed); }

   private:
    std::array<std::atomic<int64_t>, kPools> current_{};
    std::array<std::atomic<int64_t>, kPools> peak_{};
    std::atomic<int64_t> total_{0};
    std::atomic<int64_t> peak_total_{0};
  };
  const Counts& of(Side side) const { return side == Side::kDevice ? on_device_ : on_host_; }
  void Add(Pool pool, int64_t bytes, Side side);

  MemorySource* const device_;
  Counts all_, on_device_, on_host_;
};

// Owns 64-byte-aligned, zeroed memory counted in a meter, which must outlive it. Freeing host
// memory returns the pages to the operating system at once for large buffers (mmap above 1 MiB).
class Buffer {
 public:
  Buffer() = default;
  // Of the meter's device; without data when that has no memory left. `padding` of the bytes count
  // under Pool::kPadding.
  Buffer(MemoryMeter& meter, Pool pool, int64_t bytes, int64_t padding = 0)
      : Buffer(meter, meter.device(), MemoryMeter::Side::kDevice, pool, bytes, padding) {}
  // Host memory, whatever the device; from `source`, whose memory is the host's, where there is
  // one.
  static Buffer OnHost(MemoryMeter& meter, Pool pool, int64_t bytes, int64_t padding = 0,
                       MemorySource* source = nullptr) {
    return Buffer(meter, source, MemoryMeter::Side::kHost, pool, bytes, padding);
  }
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
    std::swap(source_, other.source_);
    std::swap(side_, other.side_);
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(padding_, other.padding_);
  }

 private:
  Buffer(MemoryMeter& meter, MemorySource* source, MemoryMeter::Side side, Pool pool, int64_t bytes,
         int64_t padding);

  MemoryMeter* meter_ = nullptr;
  MemorySource* source_ = nullptr;  // null: pages of the host
  MemoryMeter::Side side_ = MemoryMeter::Side::kDevice;
  Pool pool_ = Pool::kParams;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t padding_ = 0;
};

}  // namespace sherd
