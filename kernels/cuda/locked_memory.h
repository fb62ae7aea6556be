#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "kernels/cuda/driver.h"
#include "kernels/memory.h"

namespace sherd {

// Page-locked memory of the host, of the driver and each piece by itself. Thread-safe.
class LockedMemory final : public MemorySource {
 public:
  // `failed` says that nothing is to be enqueued any more, `remember` hears what fails, and `quiet`
  // waits for what travels before a piece goes back; false: it hangs, and the piece stays. The
  // driver outlives it.
  LockedMemory(CudaDriver& driver, std::function<bool()> failed,
               std::function<void(const absl::Status&)> remember, std::function<bool()> quiet);

  // kResourceExhausted, as `remember` hears, names the pool and the request.
  std::byte* Take(Pool pool, int64_t bytes) override;
  void Give(std::byte* memory) override;

 private:
  CudaDriver& driver_;
  const std::function<bool()> failed_;
  const std::function<void(const absl::Status&)> remember_;
  const std::function<bool()> quiet_;
};

}  // namespace sherd
