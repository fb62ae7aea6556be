#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/driver.h"
#include "tests/simt/executor.h"

namespace sherd::simt {

// When work that was enqueued runs.
enum class Schedule : uint8_t {
  // As soon as possible, before the call returns; the device's memory cannot be touched at any
  // other time: whoever does dies of a segmentation fault.
  kGuarded,
  // Not before somebody waits for it, and no further: whoever does not wait sees what was there
  // before.
  kLate,
  // That of streams of high priority as soon as what it waits for is done, ahead of other work and
  // before the call returns; all other as kLate.
  kPriority
};

// What of a driver its user has not given back.
struct SoftwareHoldings {
  std::atomic<int64_t> memory_bytes{0};
  std::atomic<int64_t> host_bytes{0};
  std::atomic<int64_t> registered_bytes{0};  // of the host's own memory, page-locked
  std::atomic<int64_t> streams{0};
  std::atomic<int64_t> events{0};
  std::atomic<int64_t> products{0};  // computed so far
  // Those of them with such an epilogue.
  std::atomic<int64_t> gelus{0}, gelu_gradients{0};
  std::atomic<int64_t> launches{0};  // of kernels, so far
  // Pieces of the device's memory that were freed before it had done all that it was given.
  std::atomic<int64_t> freed_at_work{0};
  std::atomic<bool> hangs{false};  // set by a test: nothing that is enqueued is done any more
  // What algorithms of products were chosen by, so far.
  absl::Mutex mutex;
  std::set<ProductKey> product_keys ABSL_GUARDED_BY(mutex);

  bool empty() const {
    return memory_bytes == 0 && host_bytes == 0 && registered_bytes == 0 && streams == 0 &&
           events == 0;
  }
};

struct SoftwareDriverOptions {
  Schedule schedule = Schedule::kLate;
  Order order = Order::kForward;
  int64_t memory_bytes = int64_t{256} << 20;
  int64_t host_bytes = int64_t{256} << 20;  // page-locked
  // Whether pages that are there can be locked.
  bool locks_pages = true;
  // Outlives the driver where a test looks at it after.
  std::shared_ptr<SoftwareHoldings> holdings = std::make_shared<SoftwareHoldings>();
  // The call of that name fails when it is made for the `failing_time`th time, from 1, and
  // everything after it.
  std::string failing_call = {};
  int failing_time = 1;
  // That cudaStreamWaitEvent, from 1, is answered well and forgotten; 0: none.
  int forgotten_wait = 0;
  // Products with so many rows are not supported, and nothing else is wrong.
  int64_t refused_rows = 0;
  std::string uuid = {};
  // Whether products can have epilogues.
  bool epilogues = true;
};

// CUDA as the host side sees it, on a machine without a GPU: device memory is memory of the host,
// full of ones at first; kernels run on the executor, products of matrices by the processor's
// library. All work runs on one thread of the driver's own, in each stream's order, but for what is
// enqueued aside. Copies, kernels and products are refused unless what their pointers name is the
// device's or page-locked.
class SoftwareDriver final : public CudaDriver {
 public:
  explicit SoftwareDriver(const SoftwareDriverOptions& options = {});
  ~SoftwareDriver() override;

  // That of SetDevice on the calling thread; null: none.
  static SoftwareDriver* Current();
  // Enqueues what may wait for other devices: it runs on a thread of the stream's as soon as what
  // is before it is done, whatever the schedule, and other streams go on meanwhile.
  static void EnqueueAside(CUstream_st* stream, std::function<void()> work);

  std::string Text(Error error) override;
  Error Malloc(void** memory, size_t bytes) override;
  Error Free(void* memory) override;
  Error MallocHost(void** memory, size_t bytes) override;
  Error FreeHost(void* memory) override;
  Error HostRegister(void* memory, size_t bytes) override;
  Error HostUnregister(void* memory) override;
  Error MemGetInfo(size_t* free, size_t* total) override;
  Error SetDevice() override;
  Error StreamCreate(CUstream_st** stream, bool high_priority) override;
  Error StreamDestroy(CUstream_st* stream) override;
  Error StreamWaitEvent(CUstream_st* stream, CUevent_st* event) override;
  Error EventCreate(CUevent_st** event) override;
  Error TimedEventCreate(CUevent_st** event) override;
  Error EventElapsedTime(float* milliseconds, CUevent_st* begin, CUevent_st* end) override;
  Error EventDestroy(CUevent_st* event) override;
  Error EventRecord(CUevent_st* event, CUstream_st* stream) override;
  // Not ready when it is asked first after a record, whatever has run.
  Error EventQuery(CUevent_st* event) override;
  Error MemcpyAsync(void* to, const void* from, size_t bytes, CUstream_st* stream) override;
  Error MemsetAsync(void* memory, int byte, size_t bytes, CUstream_st* stream) override;
  bool Computes(const Product& product) override;
  Error Multiply(const Product& product, CUstream_st* stream, std::string* why) override;
  int64_t workspace_bytes() const override { return 4096; }
  std::string model() const override { return "software device"; }
  std::string uuid() const override { return options_.uuid; }
  std::string pci_address() const override { return "0000:5d:00.0"; }
  std::string numerics_fingerprint() const override { return "software device"; }

 private:
  class Stream;
  struct Event;

  // What the call of that name answers before it does anything.
  Error Begin(const char* call) ABSL_LOCKS_EXCLUDED(mutex_);
  Error Enqueue(Stream& stream, std::function<bool()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, or with `work` empty that the stream waits until the other has done so much.
  Error Enqueue(Stream& stream, std::function<bool()> work, Stream* awaited, uint64_t until)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Has the stream's first `count` pieces of work run.
  Error RunUntil(Stream& stream, uint64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  // A stream whose next work is to be done and waits for nothing; null: none.
  Stream* NextWanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether something that was enqueued is undone and may yet be done.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work() ABSL_LOCKS_EXCLUDED(mutex_, memory_mutex_);
  // On the stream's own thread.
  void WorkAside(Stream& stream) ABSL_LOCKS_EXCLUDED(mutex_, memory_mutex_);
  // Lets the device's memory be touched, or not while nothing runs aside.
  void Guard(bool closed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_mutex_);
  // Whether it is the device's, or page-locked.
  bool Reaches(const void* begin, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  const SoftwareDriverOptions options_;
  const std::shared_ptr<SoftwareHoldings> holdings_;
  std::byte* region_ = nullptr;
  // Of those who touch the device's memory.
  absl::Mutex memory_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  int running_aside_ ABSL_GUARDED_BY(memory_mutex_) = 0;

  absl::Mutex mutex_;
  Error failure_ ABSL_GUARDED_BY(mutex_) = kSuccess;
  std::string report_ ABSL_GUARDED_BY(mutex_);  // the executor's, of the failure
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<std::byte*, size_t> pieces_ ABSL_GUARDED_BY(mutex_);  // of the region
  std::map<std::byte*, size_t> locked_ ABSL_GUARDED_BY(mutex_);  // pages of the host
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // some work
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace sherd::simt
