#include "kernels/cuda/wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/checked.h"

namespace sherd {

absl::Status HangError(absl::Duration limit) {
  return absl::DeadlineExceededError(absl::StrCat(
      "the device hangs: what was enqueued is not done after ", absl::FormatDuration(limit)));
}

absl::Status AwaitEvent(CudaDriver& driver, CUevent_st* event, absl::Duration limit) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kShort = std::chrono::microseconds(20);
  constexpr Clock::duration kLongestSleep = std::chrono::milliseconds(1);
  const Clock::time_point begin = Clock::now();
  while (true) {
    const CudaDriver::Error answer = driver.EventQuery(event);
    if (answer != CudaDriver::kNotReady) return Checked(driver, answer, "cudaEventQuery");
    const Clock::duration waited = Clock::now() - begin;
    if (absl::FromChrono(waited) >= limit) return HangError(limit);
    // Short waits stay short, and long ones, which may become longer by this share, cost no core.
    if (waited < kShort) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min(waited / 16, kLongestSleep));
    }
  }
}

}  // namespace sherd
