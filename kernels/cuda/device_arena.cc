#include "kernels/cuda/device_arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/cuda/checked.h"

namespace sherd {
namespace {

constexpr int64_t kAlignment = 256;
// What was not planned comes in pieces of this, so that small requests share a slab.
constexpr int64_t kSmallestSlab = int64_t{32} << 20;
// An error names so many pools.
constexpr size_t kNamedHolders = 3;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceArena::DeviceArena(CudaDriver& driver, std::function<absl::Status()> quiet)
    : driver_(driver), quiet_(std::move(quiet)) {}

DeviceArena::~DeviceArena() {
  SHERD_CHECK(pieces_.empty());
  // Nobody is left who could be told.
  DropEmptySlabs().IgnoreError();
}

CudaDriver::Error DeviceArena::AddSlab(int64_t bytes) {
  void* begin = nullptr;
  const CudaDriver::Error error = driver_.Malloc(&begin, static_cast<size_t>(bytes));
  if (error != CudaDriver::kSuccess) return error;
  slabs_.push_back({static_cast<std::byte*>(begin), bytes, {{0, bytes}}});
  slab_bytes_ += bytes;
  return error;
}

absl::Status DeviceArena::DropEmptySlabs() {
  const bool any =
      std::any_of(slabs_.begin(), slabs_.end(), [](const Slab& slab) { return slab.empty(); });
  if (!any) return absl::OkStatus();
  absl::Status status = quiet_();
  if (!status.ok()) return status;
  slabs_.remove_if([&](const Slab& slab) {
    if (!slab.empty()) return false;
    // A device that has failed takes nothing back, and the process ends.
    status.Update(Checked(driver_, driver_.Free(slab.begin), "cudaFree"));
    slab_bytes_ -= slab.bytes;
    return true;
  });
  return status;
}

absl::Status DeviceArena::Reserve(int64_t bytes) {
  const int64_t wanted = Aligned(bytes);
  for (const Slab& slab : slabs_) {
    for (const auto& [offset, length] : slab.free) {
      if (length >= wanted) return absl::OkStatus();
    }
  }
  SHERD_RETURN_IF_ERROR(DropEmptySlabs());
  CudaDriver::Error error = AddSlab(std::max(wanted, kSmallestSlab));
  if (error == CudaDriver::kMemoryAllocation) error = AddSlab(wanted);
  // The request that does not fit then says so.
  if (error == CudaDriver::kMemoryAllocation) return absl::OkStatus();
  return Checked(driver_, error, "cudaMalloc");
}

std::byte* DeviceArena::TakeFromSlabs(Pool pool, int64_t bytes) {
  for (Slab& slab : slabs_) {
    for (auto range = slab.free.begin(); range != slab.free.end(); ++range) {
      const auto [offset, length] = *range;
      if (length < bytes) continue;
      slab.free.erase(range);
      if (length > bytes) slab.free.emplace(offset + bytes, length - bytes);
      std::byte* const piece = slab.begin + offset;
      pieces_.emplace(piece, Piece{&slab, bytes, pool});
      held_[static_cast<size_t>(pool)] += bytes;
      used_bytes_ += bytes;
      return piece;
    }
  }
  return nullptr;
}

absl::StatusOr<std::byte*> DeviceArena::Take(Pool pool, int64_t bytes) {
  SHERD_CHECK(bytes >= 1);
  const int64_t wanted = Aligned(bytes);
  if (std::byte* const piece = TakeFromSlabs(pool, wanted)) return piece;
  CudaDriver::Error error = AddSlab(std::max(wanted, kSmallestSlab));
  if (error == CudaDriver::kMemoryAllocation) {
    SHERD_RETURN_IF_ERROR(DropEmptySlabs());
    error = AddSlab(wanted);
  }
  if (error == CudaDriver::kMemoryAllocation) return Exhausted(pool, bytes);
  if (error != CudaDriver::kSuccess) return Checked(driver_, error, "cudaMalloc");
  return TakeFromSlabs(pool, wanted);
}

void DeviceArena::Give(std::byte* piece) {
  const auto known = pieces_.find(piece);
  SHERD_CHECK(known != pieces_.end());
  const auto [slab, bytes, pool] = known->second;
  pieces_.erase(known);
  held_[static_cast<size_t>(pool)] -= bytes;
  used_bytes_ -= bytes;

  auto range = slab->free.emplace(piece - slab->begin, bytes).first;
  const auto behind = std::next(range);
  if (behind != slab->free.end() && range->first + range->second == behind->first) {
    range->second += behind->second;
    slab->free.erase(behind);
  }
  if (range == slab->free.begin()) return;
  const auto ahead = std::prev(range);
  if (ahead->first + ahead->second != range->first) return;
  ahead->second += range->second;
  slab->free.erase(range);
}

absl::Status DeviceArena::Exhausted(Pool pool, int64_t bytes) {
  size_t free = 0, total = 0;
  const bool known = driver_.MemGetInfo(&free, &total) == CudaDriver::kSuccess;
  std::vector<size_t> holders;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (held_[i] > 0) holders.push_back(i);
  }
  std::sort(holders.begin(), holders.end(),
            [this](size_t a, size_t b) { return held_[a] > held_[b]; });
  std::string text = absl::StrCat("out of device memory: ", BytesText(bytes), " for ", NameOf(pool),
                                  " cannot be had");
  if (known) {
    absl::StrAppend(&text, "; of ", BytesText(static_cast<int64_t>(total)), ", ",
                    BytesText(static_cast<int64_t>(free)), " are free, and ",
                    BytesText(slab_bytes_ - used_bytes_), " of this process in other places");
  }
  absl::StrAppend(&text, holders.empty() ? "; this process holds nothing" : "; it holds most for ");
  for (size_t i = 0; i < std::min(holders.size(), kNamedHolders); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", NameOf(static_cast<Pool>(holders[i])), " (",
                    BytesText(held_[holders[i]]), ")");
  }
  return absl::ResourceExhaustedError(text);
}

}  // namespace sherd
