#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "worker/train/trainer.h"

namespace sherd {

// Why the device does nothing more in this process; OK when it does, also where a job has run out
// of its memory, which is nothing that lasts.
absl::Status WhyBroken(const Accelerator& device);

// `trainer`, which computes on `device`. When that is broken as Run ends, `on_broken` is called
// with why, on the same thread, before Run returns. The device outlives the trainer.
std::unique_ptr<Trainer> WatchDevice(std::unique_ptr<Trainer> trainer, const Accelerator& device,
                                     std::function<void(const absl::Status&)> on_broken);

}  // namespace sherd
