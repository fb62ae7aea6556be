#include "kernels/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "common/check.h"

namespace sherd {
namespace {

constexpr int64_t kAlignment = 64;
// From here on pages come from mmap and go back to the system when freed.
constexpr int64_t kMappedBytes = 1 << 20;

void RaiseTo(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

std::byte* Map(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SHERD_CHECK(data != MAP_FAILED);
  // Matrices are read down their columns, a page a row. Where there are no huge pages, all is as it
  // would be without.
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

std::byte* Allocate(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  SHERD_CHECK(data != nullptr);
  std::memset(data, 0, static_cast<size_t>(rounded));
  return static_cast<std::byte*>(data);
}

}  // namespace

const char* NameOf(Pool pool) {
  constexpr const char* kNames[kPools] = {"params",       "grads",    "optimizer",   "padding",
                                          "accumulators", "gathered", "activations", "comm",
                                          "staging",      "scratch",  "replicas"};
  return kNames[static_cast<int>(pool)];
}

void MemoryMeter::Counts::Add(Pool pool, int64_t bytes) {
  const auto index = static_cast<size_t>(pool);
  RaiseTo(peak_[index], current_[index].fetch_add(bytes, std::memory_order_relaxed) + bytes);
  RaiseTo(peak_total_, total_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void MemoryMeter::Add(Pool pool, int64_t bytes, Side side) {
  all_.Add(pool, bytes);
  (device_ != nullptr && side == Side::kHost ? on_host_ : on_device_).Add(pool, bytes);
}

void MemoryMeter::Allocated(Pool pool, int64_t bytes, Side side) { Add(pool, bytes, side); }

void MemoryMeter::Freed(Pool pool, int64_t bytes, Side side) { Add(pool, -bytes, side); }

Buffer::Buffer(MemoryMeter& meter, MemorySource* source, MemoryMeter::Side side, Pool pool,
               int64_t bytes, int64_t padding)
    : meter_(&meter), source_(source), side_(side), pool_(pool), bytes_(bytes), padding_(padding) {
  SHERD_CHECK(padding >= 0 && bytes >= padding);
  if (source != nullptr) {
    data_ = source->Take(pool, bytes);
  } else if (bytes > 0) {
    data_ = bytes >= kMappedBytes ? Map(bytes) : Allocate(bytes);
  }
  meter.Allocated(pool, bytes - padding, side);
  meter.Allocated(Pool::kPadding, padding, side);
}

Buffer::~Buffer() {
  if (meter_ == nullptr) return;
  if (source_ != nullptr) {
    source_->Give(data_);
  } else if (bytes_ >= kMappedBytes) {
    SHERD_CHECK(munmap(data_, static_cast<size_t>(bytes_)) == 0);
  } else {
    std::free(data_);
  }
  meter_->Freed(pool_, bytes_ - padding_, side_);
  meter_->Freed(Pool::kPadding, padding_, side_);
}

}  // namespace sherd
