#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/memory.h"
#include "kernels/ops.h"

namespace sherd {

class StreamDevice;

// A moment of a device's computation, to be asked for from any thread.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  // Whether everything that was enqueued before the mark is done, or nothing is any more since the
  // device has failed, as its status then says. Waits for nothing.
  virtual bool passed() = 0;
};

// What computes. Work is enqueued in the order of calls, on the compute stream, and done later;
// what fails is remembered, and nothing is done after it: see status(). Pointers to the device's
// memory mean nothing to the host, unless it is the host's own.
//
// Calls come from one thread, but for Fetch, Deliver, status and a mark's passed: from any.
class Device {
 public:
  virtual ~Device() = default;
  // "cpu", "cuda:0".
  virtual absl::string_view name() const = 0;
  // Of the device; null: its memory is the host's.
  virtual MemorySource* memory() = 0;
  bool has_own_memory() { return memory() != nullptr; }

  // From the host, whose memory may be reused on return; to the host, when they return what was
  // enqueued before is done; within the device. Where memory is the host's, `to` may be `from`.
  virtual void CopyIn(void* to, const void* from, int64_t bytes) = 0;
  virtual void CopyOut(void* to, const void* from, int64_t bytes) = 0;
  virtual void CopyWithin(void* to, const void* from, int64_t bytes) = 0;

  // Waits for all that is enqueued, on lanes too. Errors as status.
  virtual absl::Status Synchronize() = 0;
  virtual std::shared_ptr<DeviceMark> Mark() = 0;
  // Copies to and from the host beside the computation, on the communication stream; they return
  // when it is done. What the computation has to do with that memory is the caller's to order.
  virtual absl::Status Fetch(void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status Deliver(void* to, const void* from, int64_t bytes) = 0;

  // OK until the first failure, then that: kResourceExhausted when memory did not suffice, naming
  // the pool, the request and what holds most; kInternal with the call and what the driver says.
  virtual absl::Status status() const = 0;
};

// What a job needs of a device's ops.
struct DeviceOpsOptions {
  // Counts what ops work in (Pool::kScratch).
  MemoryMeter* meter = nullptr;
  // Operands of products are rounded to bf16 first; else all of them is fp32.
  bool bf16 = false;
  // What ops take for kernels, and for operands that are copied or rounded, from the beginning;
  // more where a call needs more.
  int64_t kernel_scratch_bytes = 0;
  int64_t operand_scratch_bytes = 0;
};

// What a device does in the order in which it was enqueued: its computation, and beside it copies
// from the host, and to the host.
enum class Lane : uint8_t { kCompute, kIn, kOut };

// A moment of a lane: where it was recorded last. Before that, it has passed.
class DeviceFence {
 public:
  virtual ~DeviceFence() = default;
};

// A device with memory of its own. It serves one job after another.
class Accelerator : public Device {
 public:
  // Makes room for a job that will hold so much, in one piece; what is left of earlier ones goes
  // first, also that one of them ran out of memory. Less is taken when there is less: a request
  // that does not fit then says so.
  virtual void Reserve(int64_t bytes) = 0;
  // Gives back what no job holds, for who takes memory of the device by other ways.
  virtual void GiveBack() {}
  // Memory of the host that lanes copy from and to, page-locked.
  virtual MemorySource* locked_memory() = 0;
  // Makes it of memory that is there, until Unlock, which waits for what travels there. What cannot
  // be locked is a failure of the device.
  virtual void Lock(void* begin, int64_t bytes) = 0;
  virtual void Unlock(void* begin) = 0;
  // Never null. To be used with this device, which outlives it.
  virtual std::unique_ptr<DeviceFence> MakeFence() = 0;
  // Enqueue without waiting for anything, as ops do: a fence's moment on a lane; that what comes
  // next on a lane waits for one; a copy, whose end on the host lies in locked memory and is left
  // alone until it is done. Calls come from the thread that computes.
  virtual void Record(Lane lane, DeviceFence& fence) = 0;
  virtual void Await(Lane lane, const DeviceFence& fence) = 0;
  virtual void Copy(Lane lane, void* to, const void* from, int64_t bytes) = 0;

  // Enqueues on the compute stream. References of losses and sums are the host's, and are there on
  // return. The device and the meter outlive it; one at a time.
  virtual std::unique_ptr<Ops> MakeOps(const DeviceOpsOptions& options) = 0;
  // "NVIDIA H200".
  virtual absl::string_view model() const = 0;
  // "0000:65:00.0": by which others of this host know the device, whatever its name here.
  virtual std::string pci_address() const = 0;
  // In bytes: all, and what nobody holds.
  virtual int64_t memory_bytes() const = 0;
  virtual int64_t free_bytes() const = 0;
  // What the ops' products work in, where ops work in memory of the device as plan/device_scratch.h
  // says; none: in other memory, or nobody knows in how much.
  virtual std::optional<int64_t> workspace_bytes() const { return std::nullopt; }
  // The most channels of a head that its ops have attention for; none: any number.
  virtual std::optional<int64_t> most_head_channels() const { return std::nullopt; }
  // What collectives of the device's own are enqueued on; null: it has none.
  virtual StreamDevice* streams() { return nullptr; }
  // Equal of two that are the same one, in whatever process; "": nobody knows.
  virtual std::string unique_id() const { return ""; }
  // What bits depend on beside this build's host part.
  virtual absl::string_view numerics_fingerprint() const = 0;
};

// The processor: everything is done at once.
class HostDevice final : public Device {
 public:
  absl::string_view name() const override { return "cpu"; }
  MemorySource* memory() override { return nullptr; }
  void CopyIn(void* to, const void* from, int64_t bytes) override { CopyWithin(to, from, bytes); }
  void CopyOut(void* to, const void* from, int64_t bytes) override { CopyWithin(to, from, bytes); }
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  std::shared_ptr<DeviceMark> Mark() override;
  absl::Status Fetch(void* to, const void* from, int64_t bytes) override;
  absl::Status Deliver(void* to, const void* from, int64_t bytes) override;
  absl::Status status() const override { return absl::OkStatus(); }
};

}  // namespace sherd
