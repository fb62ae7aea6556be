#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

struct CUstream_st;

namespace sherd {

// A moment in the work of a stream: where it was recorded last. Before that, it has passed.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work of a device that is done in the order in which it was enqueued. Nothing here waits for the
// device. What fails is remembered, and nothing is enqueued after it. Pointers are memory of the
// device. One caller at a time.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  // What a library enqueues on.
  virtual CUstream_st* handle() const = 0;
  // Empty, or the call that failed first and why. From any thread.
  virtual std::string failure() const = 0;

  virtual void Record(DeviceEvent& event) = 0;
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void Clear(void* to, int64_t bytes) = 0;
  // As Ops::AddRounded.
  virtual void AddRounded(void* sum, const void* value, DType dtype, int64_t elements) = 0;
};

// A device's streams and events, which it outlives. Thread-safe.
class StreamDevice {
 public:
  virtual ~StreamDevice() = default;
  // Before a thread enqueues anything there.
  virtual absl::Status BindThread() = 0;
  // What the caller of collectives computes on.
  virtual DeviceStream& compute() = 0;
  // A stream whose work goes before that of compute() where both could run. It ends with the work
  // that is on it undone or done, and waits for it.
  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> NewStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() = 0;
  // False also when the device cannot say, which is then a failure() of the streams.
  virtual bool Passed(const DeviceEvent& event) = 0;
  // From one event to another; both have passed.
  virtual double Seconds(const DeviceEvent& begin, const DeviceEvent& end) = 0;
};

}  // namespace sherd
