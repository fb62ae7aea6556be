#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/cuda/cuda_streams.h"
#include "kernels/cuda/device_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/locked_memory.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/wait.h"
#include "kernels/device.h"

namespace sherd {

// A GPU, or what a driver makes look like one: one compute stream, one communication stream, one of
// copies in each direction beside the computation, an arena. Threads as Device and MemorySource
// say.
class CudaDevice final : public Accelerator, public MemorySource {
 public:
  // kInternal with the call when the driver refuses one. What is not done `hang_limit` after it was
  // waited for, or marked, ends the device: its status is kDeadlineExceeded then.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(std::unique_ptr<CudaDriver> driver,
                                                          std::string name,
                                                          absl::Duration hang_limit = kHangLimit);
  ~CudaDevice() override;

  absl::string_view name() const override { return name_; }
  absl::string_view model() const override { return model_; }
  std::string pci_address() const override { return driver_->pci_address(); }
  absl::string_view numerics_fingerprint() const override { return fingerprint_; }
  MemorySource* memory() override { return this; }
  int64_t memory_bytes() const override { return memory_bytes_; }
  // All of it when the driver does not say, which status() then does.
  int64_t free_bytes() const override ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<int64_t> workspace_bytes() const override { return driver_->workspace_bytes(); }
  std::optional<int64_t> most_head_channels() const override;
  std::string unique_id() const override { return driver_->uuid(); }
  StreamDevice* streams() override { return streams_.get(); }

  void CopyIn(void* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const void* from, int64_t bytes) override;
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  absl::Status Synchronize() override;
  std::shared_ptr<DeviceMark> Mark() override;
  absl::Status Fetch(void* to, const void* from, int64_t bytes) override
      ABSL_LOCKS_EXCLUDED(fetch_mutex_);
  absl::Status Deliver(void* to, const void* from, int64_t bytes) override
      ABSL_LOCKS_EXCLUDED(fetch_mutex_);
  absl::Status status() const override ABSL_LOCKS_EXCLUDED(mutex_);

  MemorySource* locked_memory() override { return &locked_memory_; }
  void Lock(void* begin, int64_t bytes) override;
  void Unlock(void* begin) override;
  std::unique_ptr<DeviceFence> MakeFence() override;
  void Record(Lane lane, DeviceFence& fence) override;
  void Await(Lane lane, const DeviceFence& fence) override;
  void Copy(Lane lane, void* to, const void* from, int64_t bytes) override;

  void Reserve(int64_t bytes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBack() override ABSL_LOCKS_EXCLUDED(mutex_);
  std::unique_ptr<Ops> MakeOps(const DeviceOpsOptions& options) override;

  std::byte* Take(Pool pool, int64_t bytes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(std::byte* memory) override ABSL_LOCKS_EXCLUDED(mutex_);

  // For what computes on it.
  CudaDriver& driver() { return *driver_; }
  CUstream_st* compute_stream() const { return compute_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Keeps the first error that is one.
  void Remember(const absl::Status& status) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for what is enqueued on a stream of the device.
  absl::Status AwaitStream(CUstream_st* stream) ABSL_LOCKS_EXCLUDED(events_mutex_);
  // Of the driver's, and handed out; for tests and metrics.
  int64_t slab_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t used_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class EventMark;
  class EventFence;

  CudaDevice(std::unique_ptr<CudaDriver> driver, std::string name, absl::Duration hang_limit);
  absl::Status OpenStreams();
  // Waits for all streams, unless the device hangs.
  absl::Status Quiet() ABSL_LOCKS_EXCLUDED(events_mutex_);
  CUstream_st* StreamOf(Lane lane) const;
  absl::StatusOr<CUevent_st*> TakeEvent() ABSL_LOCKS_EXCLUDED(events_mutex_);
  void GiveEvent(CUevent_st* event) ABSL_LOCKS_EXCLUDED(events_mutex_);
  // `error` with the device's name.
  absl::Status Named(const absl::Status& error) const;

  const std::unique_ptr<CudaDriver> driver_;
  const std::string name_, model_, fingerprint_;
  const absl::Duration hang_limit_;
  CUstream_st* compute_ = nullptr;
  CUstream_st* communication_ = nullptr;
  CUstream_st* in_ = nullptr;
  CUstream_st* out_ = nullptr;
  bool copies_ = false;  // something was enqueued on a lane of copies
  std::optional<Staging> compute_staging_;
  int64_t memory_bytes_ = 0;
  mutable std::atomic<bool> failed_{false}, hangs_{false};
  LockedMemory locked_memory_;

  absl::Mutex fetch_mutex_;  // one copy on the communication stream at a time
  std::optional<Staging> fetch_staging_ ABSL_GUARDED_BY(fetch_mutex_);

  mutable absl::Mutex mutex_;
  mutable absl::Status status_ ABSL_GUARDED_BY(mutex_);
  DeviceArena arena_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex events_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::vector<CUevent_st*> free_events_ ABSL_GUARDED_BY(events_mutex_);

  std::unique_ptr<CudaStreams> streams_;
};

}  // namespace sherd
