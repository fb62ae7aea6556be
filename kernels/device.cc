#include "kernels/device.h"

#include <cstring>

namespace sherd {
namespace {

class PassedMark final : public DeviceMark {
 public:
  bool passed() override { return true; }
};

}  // namespace

void HostDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::shared_ptr<DeviceMark> HostDevice::Mark() { return std::make_shared<PassedMark>(); }

absl::Status HostDevice::Fetch(void* to, const void* from, int64_t bytes) {
  CopyWithin(to, from, bytes);
  return absl::OkStatus();
}

absl::Status HostDevice::Deliver(void* to, const void* from, int64_t bytes) {
  CopyWithin(to, from, bytes);
  return absl::OkStatus();
}

}  // namespace sherd
