// What a GPU copies beside its computation.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/checked.h"
#include "kernels/cuda/cuda_device.h"

namespace sherd {

// An event of the device's.
class CudaDevice::EventFence final : public DeviceFence {
 public:
  EventFence(CudaDevice& device, CUevent_st* event) : device_(device), event_(event) {}
  ~EventFence() override {
    if (event_ != nullptr) device_.GiveEvent(event_);
  }
  // Null: there was none, which the device knows.
  CUevent_st* event() const { return event_; }

 private:
  CudaDevice& device_;
  CUevent_st* const event_;
};

CUstream_st* CudaDevice::StreamOf(Lane lane) const {
  return lane == Lane::kCompute ? compute_ : lane == Lane::kIn ? in_ : out_;
}

void CudaDevice::Lock(void* begin, int64_t bytes) {
  if (failed()) return;
  const CudaDriver::Error error = driver_->HostRegister(begin, static_cast<size_t>(bytes));
  if (error == CudaDriver::kSuccess) return;
  // Whatever it says, the device is well: jobs that do without find it so.
  Remember(absl::ResourceExhaustedError(absl::StrFormat(
      "%.1f MiB of the host's memory, the optimizer's state, cannot be page-locked (%s), which "
      "parallel.offload with elastic.replicas needs",
      static_cast<double>(bytes) / (1 << 20),
      Checked(*driver_, error, "cudaHostRegister").message())));
}

void CudaDevice::Unlock(void* begin) {
  // A driver waits for ever for what hangs; the process ends.
  Remember(Quiet());
  if (hangs_) return;
  // Where it was not locked, or after a failure, there is nobody to tell.
  driver_->HostUnregister(begin);
}

std::unique_ptr<DeviceFence> CudaDevice::MakeFence() {
  if (failed()) return std::make_unique<EventFence>(*this, nullptr);
  const absl::StatusOr<CUevent_st*> event = TakeEvent();
  Remember(event.status());
  return std::make_unique<EventFence>(*this, event.ok() ? *event : nullptr);
}

void CudaDevice::Record(Lane lane, DeviceFence& fence) {
  if (failed()) return;
  Remember(Checked(*driver_,
                   driver_->EventRecord(static_cast<EventFence&>(fence).event(), StreamOf(lane)),
                   "cudaEventRecord"));
}

void CudaDevice::Await(Lane lane, const DeviceFence& fence) {
  if (failed()) return;
  copies_ = true;
  Remember(Checked(
      *driver_,
      driver_->StreamWaitEvent(StreamOf(lane), static_cast<const EventFence&>(fence).event()),
      "cudaStreamWaitEvent"));
}

void CudaDevice::Copy(Lane lane, void* to, const void* from, int64_t bytes) {
  if (failed() || bytes == 0) return;
  copies_ = true;
  Remember(Checked(*driver_,
                   driver_->MemcpyAsync(to, from, static_cast<size_t>(bytes), StreamOf(lane)),
                   "cudaMemcpyAsync"));
}

}  // namespace sherd
