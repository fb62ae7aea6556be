#include "kernels/cuda/cuda_streams.h"

#include <cstdint>
#include <string>

#include "common/status_macros.h"
#include "kernels/cuda/checked.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_kernels.h"

namespace sherd {
namespace {

// For kernels that work in none.
class NoScratch final : public DeviceScratch {
 public:
  void* Reserve(int64_t) override { return nullptr; }
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(CudaDriver& driver, CUevent_st* event) : driver_(driver), event_(event) {}
  ~CudaEvent() override { driver_.EventDestroy(event_); }
  CUevent_st* event() const { return event_; }
  static CUevent_st* Of(const DeviceEvent& event) {
    return static_cast<const CudaEvent&>(event).event();
  }

 private:
  CudaDriver& driver_;
  CUevent_st* const event_;
};

class CudaStream : public DeviceStream {
 public:
  CudaStream(CudaDevice& device, CUstream_st* stream)
      : device_(device), stream_(stream), kernels_(stream, scratch_) {}

  CUstream_st* handle() const override { return stream_; }
  std::string failure() const override {
    return device_.failed() ? std::string(device_.status().message()) : "";
  }
  void Record(DeviceEvent& event) override {
    if (device_.failed()) return;
    device_.Remember(
        Checked(driver(), driver().EventRecord(CudaEvent::Of(event), stream_), "cudaEventRecord"));
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    if (device_.failed() || bytes == 0) return;
    device_.Remember(Checked(driver(),
                             driver().MemcpyAsync(to, from, static_cast<size_t>(bytes), stream_),
                             "cudaMemcpyAsync"));
  }
  void Clear(void* to, int64_t bytes) override {
    if (device_.failed() || bytes == 0) return;
    device_.Remember(Checked(driver(),
                             driver().MemsetAsync(to, 0, static_cast<size_t>(bytes), stream_),
                             "cudaMemsetAsync"));
  }
  void AddRounded(void* sum, const void* value, DType dtype, int64_t elements) override {
    if (device_.failed()) return;
    kernels_.AddRounded(sum, value, dtype, elements);
    if (!kernels_.failure().empty()) {
      device_.Remember(absl::InternalError(kernels_.failure()));
    }
  }

 protected:
  CudaDriver& driver() { return device_.driver(); }

  CudaDevice& device_;
  CUstream_st* const stream_;

 private:
  NoScratch scratch_;
  CudaKernels kernels_;
};

// One of its own.
class NewCudaStream final : public CudaStream {
 public:
  using CudaStream::CudaStream;
  ~NewCudaStream() override {
    // A device that hangs knows it then, and its process ends.
    device_.Remember(device_.AwaitStream(stream_));
    driver().StreamDestroy(stream_);
  }
};

}  // namespace

CudaStreams::CudaStreams(CudaDevice& device)
    : device_(device), compute_(std::make_unique<CudaStream>(device, device.compute_stream())) {}

CudaStreams::~CudaStreams() = default;

absl::Status CudaStreams::BindThread() {
  return Checked(device_.driver(), device_.driver().SetDevice(), "cudaSetDevice");
}

absl::StatusOr<std::unique_ptr<DeviceStream>> CudaStreams::NewStream() {
  CUstream_st* stream = nullptr;
  SHERD_RETURN_IF_ERROR(Checked(device_.driver(),
                                device_.driver().StreamCreate(&stream, /*high_priority=*/true),
                                "cudaStreamCreate"));
  return std::make_unique<NewCudaStream>(device_, stream);
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> CudaStreams::NewEvent() {
  CUevent_st* event = nullptr;
  SHERD_RETURN_IF_ERROR(
      Checked(device_.driver(), device_.driver().TimedEventCreate(&event), "cudaEventCreate"));
  return std::make_unique<CudaEvent>(device_.driver(), event);
}

bool CudaStreams::Passed(const DeviceEvent& event) {
  if (device_.failed()) return false;
  const CudaDriver::Error answer = device_.driver().EventQuery(CudaEvent::Of(event));
  if (answer == CudaDriver::kNotReady) return false;
  device_.Remember(Checked(device_.driver(), answer, "cudaEventQuery"));
  return answer == CudaDriver::kSuccess;
}

double CudaStreams::Seconds(const DeviceEvent& begin, const DeviceEvent& end) {
  if (device_.failed()) return 0;
  float milliseconds = 0;
  device_.Remember(Checked(
      device_.driver(),
      device_.driver().EventElapsedTime(&milliseconds, CudaEvent::Of(begin), CudaEvent::Of(end)),
      "cudaEventElapsedTime"));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace sherd
