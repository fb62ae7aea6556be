#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace sherd {

// The processor behind memory of its own, of at most so many bytes: ops are the processor's, so
// that whatever runs on it has the processor's bits. Everything is done at once, but what lanes
// copy not before something waits for it.
class SeparateDevice final : public Accelerator, public MemorySource {
 public:
  // Whether copies between device and host must have their ends there.
  enum class Sides { kChecked, kAny };
  explicit SeparateDevice(int64_t memory_bytes = int64_t{256} << 20, Sides sides = Sides::kChecked)
      : bytes_(memory_bytes), sides_(sides) {}
  // Checks that all memory was given back.
  ~SeparateDevice() override;

  // From now on the device has failed with it.
  void Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on it has no memory left for this.
  void Refuse(Pool pool) ABSL_LOCKS_EXCLUDED(mutex_);
  // While it hangs, no mark passes.
  void Hang(bool hangs) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called before every Fetch and Deliver.
  void BeforeCopies(std::function<void()> call) { before_copies_ = std::move(call); }
  int64_t used_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The most at one moment, without what ops work in.
  int64_t most_used_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the last Reserve.
  int64_t reserved_bytes() const { return reserved_; }
  // Locked memory of the host, so far not given back.
  int64_t locked_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on there is no more of it.
  void RefuseLocked() ABSL_LOCKS_EXCLUDED(mutex_);
  // To the device, and back from it, so far; without what lanes copied.
  int64_t bytes_in() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t bytes_out() const ABSL_LOCKS_EXCLUDED(mutex_);

  absl::string_view name() const override { return "separate:0"; }
  absl::string_view model() const override { return "processor with memory of its own"; }
  std::string pci_address() const override { return "0000:00:00.0"; }
  absl::string_view numerics_fingerprint() const override { return "cpu"; }
  MemorySource* memory() override { return this; }
  int64_t memory_bytes() const override { return bytes_; }
  int64_t free_bytes() const override { return bytes_ - used_bytes(); }
  void Reserve(int64_t bytes) override { reserved_ = bytes; }
  std::unique_ptr<Ops> MakeOps(const DeviceOpsOptions& options) override;

  MemorySource* locked_memory() override { return &locked_; }
  void Lock(void* begin, int64_t bytes) override;
  void Unlock(void* begin) override;
  std::unique_ptr<DeviceFence> MakeFence() override;
  void Record(Lane lane, DeviceFence& fence) override;
  void Await(Lane lane, const DeviceFence& fence) override;
  void Copy(Lane lane, void* to, const void* from, int64_t bytes) override;

  void CopyIn(void* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const void* from, int64_t bytes) override;
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  absl::Status Synchronize() override;
  std::shared_ptr<DeviceMark> Mark() override;
  absl::Status Fetch(void* to, const void* from, int64_t bytes) override;
  absl::Status Deliver(void* to, const void* from, int64_t bytes) override;
  absl::Status status() const override ABSL_LOCKS_EXCLUDED(mutex_);

  std::byte* Take(Pool pool, int64_t bytes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(std::byte* memory) override ABSL_LOCKS_EXCLUDED(mutex_);

  // What lanes copied, so far.
  int64_t lane_bytes(Lane lane) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class StatusMark;
  class Fence;
  // Page-locked, as far as this device knows.
  class LockedMemory final : public MemorySource {
   public:
    explicit LockedMemory(SeparateDevice& device) : device_(device) {}
    std::byte* Take(Pool pool, int64_t bytes) override;
    void Give(std::byte* memory) override;

   private:
    SeparateDevice& device_;
  };
  // What was enqueued on a lane of copies.
  struct Work {
    std::function<void()> copy;  // null: it waits
    Lane awaited = Lane::kCompute;
    int64_t until = 0;
  };
  // Has so much of what was enqueued there done.
  void RunUntil(Lane lane, int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Enqueued(Lane lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsLocked(const void* begin, int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The device's are whole pieces of it, the host's none.
  void CheckSides(const void* device, const void* host, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Holds(const void* begin, int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t bytes_;
  const Sides sides_;
  int64_t reserved_ = 0;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<const std::byte*, int64_t> pieces_ ABSL_GUARDED_BY(mutex_);
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<const std::byte*> scratch_ ABSL_GUARDED_BY(mutex_);  // of the pieces
  int64_t used_beside_scratch_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t most_used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Pool> refused_ ABSL_GUARDED_BY(mutex_);
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> before_copies_;
  LockedMemory locked_{*this};
  bool refuses_locked_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<const std::byte*, int64_t> locked_pieces_ ABSL_GUARDED_BY(mutex_);
  // By lane.
  std::deque<Work> waiting_[3] ABSL_GUARDED_BY(mutex_);
  int64_t done_[3] ABSL_GUARDED_BY(mutex_) = {};
  int64_t lane_bytes_[3] ABSL_GUARDED_BY(mutex_) = {};
  int64_t in_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sherd
