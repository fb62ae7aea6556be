#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/device/gpu_readings.h"

namespace sherd {

// Reads a GPU on a thread of its own, when somebody looks: a driver that is slow or hangs holds up
// nobody for longer than a look may take. One line in the log says why nothing can be read, or,
// once each, which reading fails; readings that fail have no samples. Thread-safe.
class GpuWatch {
 public:
  struct Options {
    std::string library = kNvmlLibrary;
    // "0000:65:00.0".
    std::string pci_address;
    // Of a look.
    absl::Duration limit = absl::Milliseconds(250);
    // A sample that is older is none.
    absl::Duration lifetime = absl::Seconds(30);
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  };
  struct View {
    std::string uuid;
    std::vector<GpuSample> samples;
  };

  explicit GpuWatch(Options options);
  // Waits for the call that is under way.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;

  // Everything read anew if that takes no longer than the limit; else what has been read so far,
  // and of the rest what was read before. Empty: nothing can be read.
  View Look() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Held {
    std::vector<GpuSample> samples;
    std::chrono::steady_clock::time_point read_at;
    bool told = false;  // that it fails
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadAll(const GpuReadings& gpu) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  // Looks so far, and those of them that are answered.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing can be read
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string uuid_ ABSL_GUARDED_BY(mutex_);
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);  // by reading
  std::thread thread_;
};

}  // namespace sherd
