#pragma once

#include <cstdint>
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
// that whatever runs on it has the processor's bits. Everything is done at once.
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
  // To the device, and back from it, so far.
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

  void CopyIn(void* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const void* from, int64_t bytes) override;
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  absl::Status Synchronize() override { return status(); }
  std::shared_ptr<DeviceMark> Mark() override;
  absl::Status Fetch(void* to, const void* from, int64_t bytes) override;
  absl::Status Deliver(void* to, const void* from, int64_t bytes) override;
  absl::Status status() const override ABSL_LOCKS_EXCLUDED(mutex_);

  std::byte* Take(Pool pool, int64_t bytes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(std::byte* memory) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class StatusMark;
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
  int64_t in_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sherd
