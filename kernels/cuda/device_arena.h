#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"
#include "kernels/memory.h"

namespace sherd {

// Device memory in slabs that are kept: a piece is the first free range that is large enough, and
// one that is given back merges with its neighbours, so that a job leaves whole slabs behind,
// however often jobs come and go. Pieces are 256-byte aligned. Not thread-safe.
class DeviceArena {
 public:
  // `quiet` is called before a slab goes back to the driver: nothing that is enqueued may use it
  // when it returns OK. Both outlive the arena.
  DeviceArena(CudaDriver& driver, std::function<absl::Status()> quiet);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;

  // Room for `bytes` in one slab, where the driver has that much; slabs that nobody uses go back to
  // it first. Errors of the driver and of `quiet`.
  absl::Status Reserve(int64_t bytes);
  // Slabs that nobody uses go back to the driver. Errors as Reserve.
  absl::Status DropEmptySlabs();
  // kResourceExhausted names the pool, the request, and what holds most; else errors as Reserve.
  // `bytes` >= 1.
  absl::StatusOr<std::byte*> Take(Pool pool, int64_t bytes);
  // What Take gave.
  void Give(std::byte* piece);

  // Of the driver, and handed out.
  int64_t slab_bytes() const { return slab_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t held(Pool pool) const { return held_[static_cast<size_t>(pool)]; }

 private:
  struct Slab {
    std::byte* begin;
    int64_t bytes;
    // Free ranges by offset; none touches another.
    std::map<int64_t, int64_t> free;

    bool empty() const { return free.size() == 1 && free.begin()->second == bytes; }
  };
  struct Piece {
    Slab* slab;
    int64_t bytes;
    Pool pool;
  };

  // Null when no slab has so much in one range.
  std::byte* TakeFromSlabs(Pool pool, int64_t bytes);
  CudaDriver::Error AddSlab(int64_t bytes);
  absl::Status Exhausted(Pool pool, int64_t bytes);

  CudaDriver& driver_;
  const std::function<absl::Status()> quiet_;
  std::list<Slab> slabs_;
  std::map<std::byte*, Piece> pieces_;
  std::array<int64_t, kPools> held_{};
  int64_t slab_bytes_ = 0;
  int64_t used_bytes_ = 0;
};

}  // namespace sherd
