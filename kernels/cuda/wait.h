#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/cuda/driver.h"

namespace sherd {

// What a device does between two waits of the host takes seconds at most; after this it hangs.
inline constexpr absl::Duration kHangLimit = absl::Minutes(5);

// kDeadlineExceeded: "the device hangs: …".
absl::Status HangError(absl::Duration limit);

// Waits until what was enqueued before the event's record is done: by asking, since what waits
// within the driver for a device that hangs never returns. HangError after `limit`; errors of the
// driver.
absl::Status AwaitEvent(CudaDriver& driver, CUevent_st* event, absl::Duration limit);

}  // namespace sherd
