#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_stream.h"

namespace sherd {

class CudaDevice;

// A GPU's streams and events as collectives want them. What fails ends the device: its status is
// the failure of all streams. Threads as StreamDevice and DeviceStream say.
class CudaStreams final : public StreamDevice {
 public:
  // The device has its compute stream, and outlives the object.
  explicit CudaStreams(CudaDevice& device);
  ~CudaStreams() override;

  absl::Status BindThread() override;
  DeviceStream& compute() override { return *compute_; }
  absl::StatusOr<std::unique_ptr<DeviceStream>> NewStream() override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() override;
  bool Passed(const DeviceEvent& event) override;
  double Seconds(const DeviceEvent& begin, const DeviceEvent& end) override;

 private:
  CudaDevice& device_;
  const std::unique_ptr<DeviceStream> compute_;
};

}  // namespace sherd
