#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device_stream.h"

namespace sherd {

// A stream as a thread; its device's memory is the host's.
class ThreadStream final : public DeviceStream {
 public:
  // Adds what is enqueued to the count, which outlives it; null: nobody counts.
  explicit ThreadStream(std::atomic<int>* enqueued = nullptr);
  // Does what is enqueued first.
  ~ThreadStream() override;

  CUstream_st* handle() const override;
  static ThreadStream& Of(CUstream_st* handle);
  std::string failure() const override ABSL_LOCKS_EXCLUDED(mutex_);
  void Record(DeviceEvent& event) override;
  void Copy(void* to, const void* from, int64_t bytes) override;
  void Clear(void* to, int64_t bytes) override;
  void AddRounded(void* sum, const void* value, DType dtype, int64_t elements) override;

  void Enqueue(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // What a real one says after an error of the device.
  void Fail(std::string failure) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);

  std::atomic<int>* const enqueued_;
  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

class ThreadEvent final : public DeviceEvent {
 public:
  // Shared with the stream that passes it.
  struct State {
    std::atomic<int64_t> recorded{0};
    std::atomic<int64_t> passed{0};
    std::atomic<int64_t> nanoseconds{0};
  };
  bool passed() const { return state->passed.load() >= state->recorded.load(); }
  const std::shared_ptr<State> state = std::make_shared<State>();
};

// One rank's device.
class ThreadDevice final : public StreamDevice {
 public:
  absl::Status BindThread() override;
  ThreadStream& compute() override { return compute_; }
  absl::StatusOr<std::unique_ptr<DeviceStream>> NewStream() override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() override;
  bool Passed(const DeviceEvent& event) override;
  double Seconds(const DeviceEvent& begin, const DeviceEvent& end) override;

  int bound_threads() ABSL_LOCKS_EXCLUDED(mutex_);
  // Called once, when an event is next found to have passed.
  void WhenNextPassed(std::function<void()> call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Streams made from now on do this first.
  void BeginStreamsWith(std::function<void()> work) { first_work_ = std::move(work); }
  // On all streams but compute(), so far.
  int enqueued() const { return enqueued_.load(); }
  // The stream that was made last.
  ThreadStream& last_stream() { return *last_stream_; }

 private:
  ThreadStream compute_;
  std::atomic<int> enqueued_{0};
  absl::Mutex mutex_;
  std::set<std::thread::id> bound_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> when_passed_ ABSL_GUARDED_BY(mutex_);
  ThreadStream* last_stream_ = nullptr;
  std::function<void()> first_work_;
};

}  // namespace sherd
