#include "kernels/cuda/locked_memory.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/checked.h"

namespace sherd {

LockedMemory::LockedMemory(CudaDriver& driver, std::function<bool()> failed,
                           std::function<void(const absl::Status&)> remember,
                           std::function<bool()> quiet)
    : driver_(driver),
      failed_(std::move(failed)),
      remember_(std::move(remember)),
      quiet_(std::move(quiet)) {}

std::byte* LockedMemory::Take(Pool pool, int64_t bytes) {
  if (bytes == 0 || failed_()) return nullptr;
  void* memory = nullptr;
  const CudaDriver::Error error = driver_.MallocHost(&memory, static_cast<size_t>(bytes));
  if (error == CudaDriver::kMemoryAllocation) {
    remember_(absl::ResourceExhaustedError(
        absl::StrCat("out of page-locked memory of the host: ",
                     absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20)), " for ",
                     NameOf(pool))));
    return nullptr;
  }
  if (const absl::Status status = Checked(driver_, error, "cudaMallocHost"); !status.ok()) {
    remember_(status);
    return nullptr;
  }
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

void LockedMemory::Give(std::byte* memory) {
  if (memory == nullptr) return;
  // A driver waits for ever for what hangs; the process ends.
  if (!quiet_()) return;
  remember_(Checked(driver_, driver_.FreeHost(memory), "cudaFreeHost"));
}

}  // namespace sherd
