#include "tests/simt/software_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/simt/device.h"
#include "tests/simt/software_product.h"

namespace sherd::simt {
namespace {

constexpr CudaDriver::Error kInvalidValue = 1;
constexpr CudaDriver::Error kIllegalAddress = 700;
constexpr CudaDriver::Error kLaunchFailure = 719;
constexpr CudaDriver::Error kMadeToFail = 999;
constexpr size_t kPage = 4096;

size_t InPages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

thread_local SoftwareDriver* current_driver = nullptr;

}  // namespace

class SoftwareDriver::Stream final : public CUstream_st {
 public:
  explicit Stream(SoftwareDriver& driver) : driver_(driver) {}
  cudaError_t Launch(std::function<bool()> launch,
                     const std::vector<const void*>& pointers) override {
    for (const void* const pointer : pointers) {
      if (pointer != nullptr && !driver_.Reaches(pointer, 0)) return kIllegalAddress;
    }
    ++driver_.holdings_->launches;
    return driver_.Enqueue(*this, std::move(launch));
  }

  SoftwareDriver& driver() { return driver_; }

  struct Work {
    std::function<bool()> run;  // empty: it waits for another stream
    Stream* awaited = nullptr;
    uint64_t until = 0;
    bool aside = false;
    bool waits() const { return awaited != nullptr && awaited->done < until; }
  };
  // Guarded by the driver's mutex.
  std::deque<Work> waiting;
  uint64_t enqueued = 0, wanted = 0, done = 0;
  bool high_priority = false;
  bool destroyed = false;
  int asides = 0;                       // enqueued and not done
  std::function<bool()> running_aside;  // what is next on the stream; null: nothing
  bool busy = false;                    // until that is done
  std::thread aside_thread;             // from the first on

 private:
  SoftwareDriver& driver_;
};

struct SoftwareDriver::Event {
  Stream* stream = nullptr;
  uint64_t count = 0;  // what the stream has done by then
  bool asked = false;
  // Of a timed one: when that was, of the steady clock.
  std::shared_ptr<std::atomic<int64_t>> nanoseconds = nullptr;
};

SoftwareDriver::SoftwareDriver(const SoftwareDriverOptions& options)
    : options_(options), holdings_(options.holdings) {
  void* const region =
      mmap(nullptr, static_cast<size_t>(options.memory_bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SHERD_CHECK(region != MAP_FAILED);
  region_ = static_cast<std::byte*>(region);
  {
    absl::MutexLock lock(&memory_mutex_);
    Guard(/*closed=*/true);
  }
  worker_ = std::thread([this] { Work(); });
}

SoftwareDriver::~SoftwareDriver() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  worker_.join();
  for (const std::unique_ptr<Stream>& stream : streams_) {
    if (stream->aside_thread.joinable()) stream->aside_thread.join();
  }
  munmap(region_, static_cast<size_t>(options_.memory_bytes));
}

void SoftwareDriver::Guard(bool closed) {
  if (options_.schedule != Schedule::kGuarded || (closed && running_aside_ > 0)) return;
  SHERD_CHECK(mprotect(region_, static_cast<size_t>(options_.memory_bytes),
                       closed ? PROT_NONE : PROT_READ | PROT_WRITE) == 0);
}

std::string SoftwareDriver::Text(Error error) {
  absl::MutexLock lock(&mutex_);
  switch (error) {
    case kMemoryAllocation:
      return "out of memory (2)";
    case kInvalidValue:
      return "invalid argument (1)";
    case kIllegalAddress:
      return "an illegal memory access (700): a pointer is to memory that is not the device's";
    case kLaunchFailure:
      return absl::StrCat("unspecified launch failure (719): ", report_);
    default:
      return absl::StrCat("made to fail (", error, ")");
  }
}

CudaDriver::Error SoftwareDriver::Begin(const char* call) {
  absl::MutexLock lock(&mutex_);
  const int time = ++calls_[call];
  if (failure_ == kSuccess && options_.failing_call == call && time >= options_.failing_time) {
    failure_ = kMadeToFail;
  }
  return failure_;
}

CudaDriver::Error SoftwareDriver::Malloc(void** memory, size_t bytes) {
  if (const Error error = Begin("cudaMalloc"); error != kSuccess) return error;
  const size_t size = InPages(bytes);
  std::byte* begin = region_;
  absl::MutexLock memory_lock(&memory_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [piece, piece_bytes] : pieces_) {
      if (static_cast<size_t>(piece - begin) >= size) break;
      begin = piece + piece_bytes;
    }
    if (begin + size > region_ + options_.memory_bytes) return kMemoryAllocation;
    pieces_.emplace(begin, size);
  }
  Guard(/*closed=*/false);
  std::memset(begin, 0xff, size);
  Guard(/*closed=*/true);
  holdings_->memory_bytes += static_cast<int64_t>(size);
  *memory = begin;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::Free(void* memory) {
  // It is taken back all the same.
  const Error error = Begin("cudaFree");
  absl::MutexLock running(&memory_mutex_);
  absl::MutexLock lock(&mutex_);
  const auto piece = pieces_.find(static_cast<std::byte*>(memory));
  if (piece == pieces_.end()) return kInvalidValue;
  holdings_->freed_at_work += HasWork();
  holdings_->memory_bytes -= static_cast<int64_t>(piece->second);
  pieces_.erase(piece);
  return error;
}

bool SoftwareDriver::HasWork() const {
  if (failure_ != kSuccess || holdings_->hangs) return false;
  for (const std::unique_ptr<Stream>& stream : streams_) {
    if (!stream->destroyed && stream->done < stream->enqueued) return true;
  }
  return false;
}

CudaDriver::Error SoftwareDriver::MallocHost(void** memory, size_t bytes) {
  if (const Error error = Begin("cudaMallocHost"); error != kSuccess) return error;
  if (holdings_->host_bytes + static_cast<int64_t>(bytes) > options_.host_bytes) {
    return kMemoryAllocation;
  }
  *memory = std::malloc(bytes);
  SHERD_CHECK(*memory != nullptr);
  std::memset(*memory, 0xff, bytes);
  holdings_->host_bytes += static_cast<int64_t>(bytes);
  absl::MutexLock lock(&mutex_);
  locked_.emplace(static_cast<std::byte*>(*memory), bytes);
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::FreeHost(void* memory) {
  absl::MutexLock running(&memory_mutex_);
  absl::MutexLock lock(&mutex_);
  const auto piece = locked_.find(static_cast<std::byte*>(memory));
  if (piece == locked_.end()) return kInvalidValue;
  holdings_->host_bytes -= static_cast<int64_t>(piece->second);
  locked_.erase(piece);
  std::free(memory);
  return failure_;
}

CudaDriver::Error SoftwareDriver::HostRegister(void* memory, size_t bytes) {
  if (const Error error = Begin("cudaHostRegister"); error != kSuccess) return error;
  if (!options_.locks_pages) return kInvalidValue;
  absl::MutexLock lock(&mutex_);
  if (!locked_.emplace(static_cast<std::byte*>(memory), bytes).second) return kInvalidValue;
  holdings_->registered_bytes += static_cast<int64_t>(bytes);
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::HostUnregister(void* memory) {
  absl::MutexLock running(&memory_mutex_);
  absl::MutexLock lock(&mutex_);
  const auto piece = locked_.find(static_cast<std::byte*>(memory));
  if (piece == locked_.end()) return kInvalidValue;
  holdings_->registered_bytes -= static_cast<int64_t>(piece->second);
  locked_.erase(piece);
  return failure_;
}

CudaDriver::Error SoftwareDriver::MemGetInfo(size_t* free, size_t* total) {
  if (const Error error = Begin("cudaMemGetInfo"); error != kSuccess) return error;
  *total = static_cast<size_t>(options_.memory_bytes);
  *free = *total - static_cast<size_t>(holdings_->memory_bytes);
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::SetDevice() {
  current_driver = this;
  return Begin("cudaSetDevice");
}

SoftwareDriver* SoftwareDriver::Current() { return current_driver; }

CudaDriver::Error SoftwareDriver::StreamCreate(CUstream_st** stream, bool high_priority) {
  if (const Error error = Begin("cudaStreamCreate"); error != kSuccess) return error;
  absl::MutexLock lock(&mutex_);
  Stream& made = *streams_.emplace_back(std::make_unique<Stream>(*this));
  made.high_priority = high_priority;
  *stream = &made;
  ++holdings_->streams;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::StreamDestroy(CUstream_st* stream) {
  // The object stays until the end: after a failure, work of it may be running.
  absl::MutexLock lock(&mutex_);
  static_cast<Stream*>(stream)->destroyed = true;
  --holdings_->streams;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::StreamWaitEvent(CUstream_st* stream, CUevent_st* event) {
  if (const Error error = Begin("cudaStreamWaitEvent"); error != kSuccess) return error;
  Event known;
  {
    absl::MutexLock lock(&mutex_);
    if (calls_["cudaStreamWaitEvent"] == options_.forgotten_wait) return kSuccess;
    known = *reinterpret_cast<Event*>(event);
  }
  if (known.stream == nullptr) return kSuccess;
  return Enqueue(*static_cast<Stream*>(stream), nullptr, known.stream, known.count);
}

CudaDriver::Error SoftwareDriver::EventCreate(CUevent_st** event) {
  if (const Error error = Begin("cudaEventCreate"); error != kSuccess) return error;
  *event = reinterpret_cast<CUevent_st*>(new Event());
  ++holdings_->events;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::TimedEventCreate(CUevent_st** event) {
  const Error error = EventCreate(event);
  if (error != kSuccess) return error;
  reinterpret_cast<Event*>(*event)->nanoseconds = std::make_shared<std::atomic<int64_t>>(0);
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::EventElapsedTime(float* milliseconds, CUevent_st* begin,
                                                   CUevent_st* end) {
  if (const Error error = Begin("cudaEventElapsedTime"); error != kSuccess) return error;
  const auto at = [](CUevent_st* event) {
    return reinterpret_cast<Event*>(event)->nanoseconds->load();
  };
  *milliseconds = static_cast<float>(at(end) - at(begin)) * 1e-6f;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::EventDestroy(CUevent_st* event) {
  delete reinterpret_cast<Event*>(event);
  --holdings_->events;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::EventRecord(CUevent_st* event, CUstream_st* stream) {
  if (const Error error = Begin("cudaEventRecord"); error != kSuccess) return error;
  auto& known = *static_cast<Stream*>(stream);
  auto& recorded = *reinterpret_cast<Event*>(event);
  if (const auto time = recorded.nanoseconds; time != nullptr) {
    Enqueue(known, [time] {
      time->store(std::chrono::steady_clock::now().time_since_epoch().count());
      return true;
    });
  }
  absl::MutexLock lock(&mutex_);
  recorded.stream = &known;
  recorded.count = known.enqueued;
  recorded.asked = false;
  return kSuccess;
}

CudaDriver::Error SoftwareDriver::EventQuery(CUevent_st* event) {
  if (const Error error = Begin("cudaEventQuery"); error != kSuccess) return error;
  if (holdings_->hangs) return kNotReady;
  Event known;
  {
    absl::MutexLock lock(&mutex_);
    auto& recorded = *reinterpret_cast<Event*>(event);
    known = recorded;
    recorded.asked = true;
  }
  if (known.stream == nullptr) return kSuccess;
  if (!known.asked) return kNotReady;
  {
    // Nobody waits here for other devices.
    absl::MutexLock lock(&mutex_);
    Stream& stream = *known.stream;
    if (stream.asides > 0 && stream.done < known.count) {
      stream.wanted = std::max(stream.wanted, known.count);
      return failure_ == kSuccess ? kNotReady : failure_;
    }
  }
  return RunUntil(*known.stream, known.count);
}

bool SoftwareDriver::Reaches(const void* begin, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(begin);
  absl::MutexLock lock(&mutex_);
  for (const auto* pieces : {&pieces_, &locked_}) {
    for (const auto& [piece, piece_bytes] : *pieces) {
      if (first >= piece && first + bytes <= piece + piece_bytes) return true;
    }
  }
  return false;
}

CudaDriver::Error SoftwareDriver::MemcpyAsync(void* to, const void* from, size_t bytes,
                                              CUstream_st* stream) {
  if (const Error error = Begin("cudaMemcpyAsync"); error != kSuccess) return error;
  if (!Reaches(to, bytes) || !Reaches(from, bytes)) return kInvalidValue;
  return Enqueue(*static_cast<Stream*>(stream), [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
}

CudaDriver::Error SoftwareDriver::MemsetAsync(void* memory, int byte, size_t bytes,
                                              CUstream_st* stream) {
  if (const Error error = Begin("cudaMemsetAsync"); error != kSuccess) return error;
  if (!Reaches(memory, bytes)) return kInvalidValue;
  return Enqueue(*static_cast<Stream*>(stream), [=] {
    std::memset(memory, byte, bytes);
    return true;
  });
}

bool SoftwareDriver::Computes(const Product& product) {
  // As cuBLASLt, whose list of types has no other.
  const bool known_types = product.result == DType::kF32 ||
                           (product.operands == DType::kBF16 && product.bias == nullptr);
  const bool plain = product.epilogue == Epilogue::kNone;
  return known_types && product.m != options_.refused_rows && (plain || options_.epilogues) &&
         product.workspace_bytes == workspace_bytes();
}

CudaDriver::Error SoftwareDriver::Multiply(const Product& product, CUstream_st* stream,
                                           std::string* why) {
  if (const Error error = Begin("cublasLtMatmul"); error != kSuccess) return error;
  const bool with_epilogue = product.epilogue != Epilogue::kNone;
  const bool gradient = product.epilogue == Epilogue::kGeluGradient;
  const bool bad_epilogue =
      with_epilogue && (product.accumulate || product.result != DType::kF32 ||
                        product.n % kEpilogueColumns != 0 || (gradient && product.bias != nullptr));
  if (bad_epilogue || !Computes(product)) {
    *why = "cublasLtMatmulAlgoGetHeuristic failed: CUBLAS_STATUS_NOT_SUPPORTED";
    return kNoProduct;
  }
  const auto reaches = [this](const void* begin, int64_t elements, DType dtype) {
    return Reaches(begin, static_cast<size_t>(elements * SizeOf(dtype)));
  };
  if (!reaches(product.a, product.m * product.k, product.operands) ||
      !reaches(product.b, product.k * product.n, product.operands) ||
      !reaches(product.d, product.m * product.n, product.result) ||
      (product.bias != nullptr && !reaches(product.bias, product.n, DType::kF32)) ||
      (with_epilogue && !reaches(product.pre, product.m * product.n, DType::kF32)) ||
      !Reaches(product.workspace, static_cast<size_t>(product.workspace_bytes))) {
    return kIllegalAddress;
  }
  for (const void* const pointer :
       {product.a, product.b, static_cast<const void*>(product.d),
        static_cast<const void*>(product.bias), static_cast<const void*>(product.pre)}) {
    if (reinterpret_cast<uintptr_t>(pointer) % kProductAlignment == 0) continue;
    *why = "cublasLtMatmul failed: less aligned than its algorithm was chosen for";
    return kNoProduct;
  }
  ++holdings_->products;
  holdings_->gelus += product.epilogue == Epilogue::kGelu;
  holdings_->gelu_gradients += gradient;
  {
    absl::MutexLock lock(&holdings_->mutex);
    holdings_->product_keys.insert(KeyOf(product));
  }
  return Enqueue(*static_cast<Stream*>(stream), [product] {
    MultiplyOnHost(product);
    return true;
  });
}

CudaDriver::Error SoftwareDriver::Enqueue(Stream& stream, std::function<bool()> work) {
  return Enqueue(stream, std::move(work), nullptr, 0);
}

CudaDriver::Error SoftwareDriver::Enqueue(Stream& stream, std::function<bool()> work,
                                          Stream* awaited, uint64_t until) {
  uint64_t count = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (failure_ != kSuccess) return failure_;
    stream.waiting.push_back({std::move(work), awaited, until});
    count = ++stream.enqueued;
    // It comes behind what may wait for other devices.
    if (stream.asides > 0) return kSuccess;
  }
  if (holdings_->hangs) return kSuccess;
  // As on a device, what comes of it is told by a later call.
  if (options_.schedule == Schedule::kGuarded) RunUntil(stream, count);
  if (options_.schedule == Schedule::kPriority) {
    const auto idle = [this] {
      mutex_.AssertHeld();
      return failure_ != kSuccess || (!running_ && NextWanted() == nullptr);
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&idle));
  }
  return kSuccess;
}

void SoftwareDriver::EnqueueAside(CUstream_st* stream, std::function<void()> work) {
  auto& known = *static_cast<Stream*>(stream);
  SoftwareDriver& driver = known.driver();
  absl::MutexLock lock(&driver.mutex_);
  if (!known.aside_thread.joinable()) {
    known.aside_thread = std::thread([&driver, &known] { driver.WorkAside(known); });
  }
  ++known.asides;
  known.wanted = ++known.enqueued;
  Stream::Work aside;
  aside.run = [work = std::move(work)] {
    work();
    return true;
  };
  aside.aside = true;
  known.waiting.push_back(std::move(aside));
}

void SoftwareDriver::WorkAside(Stream& stream) {
  // What a device that has failed does not come to is over for those who wait for it.
  const auto left_over = [&] {
    mutex_.AssertHeld();
    return failure_ != kSuccess && !stream.busy && stream.asides > 0;
  };
  const auto called = [&] {
    mutex_.AssertHeld();
    return stopping_ || stream.running_aside != nullptr || left_over();
  };
  while (true) {
    std::function<bool()> work;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&called));
      if (stream.running_aside != nullptr) {
        work = std::exchange(stream.running_aside, nullptr);
      } else if (left_over()) {
        while (!stream.waiting.front().aside) stream.waiting.pop_front();
        work = std::move(stream.waiting.front().run);
        stream.waiting.pop_front();
        stream.busy = true;
      } else {
        return;
      }
    }
    {
      absl::MutexLock running(&memory_mutex_);
      Guard(/*closed=*/false);
      ++running_aside_;
    }
    work();
    absl::MutexLock running(&memory_mutex_);
    --running_aside_;
    Guard(/*closed=*/true);
    absl::MutexLock lock(&mutex_);
    ++stream.done;
    --stream.asides;
    stream.busy = false;
  }
}

CudaDriver::Error SoftwareDriver::RunUntil(Stream& stream, uint64_t count) {
  const auto reached = [&] {
    mutex_.AssertReaderHeld();
    return failure_ != kSuccess || stream.done >= count;
  };
  absl::MutexLock lock(&mutex_);
  stream.wanted = std::max(stream.wanted, count);
  mutex_.Await(absl::Condition(&reached));
  return failure_;
}

SoftwareDriver::Stream* SoftwareDriver::NextWanted() {
  if (options_.schedule == Schedule::kPriority) {
    for (const std::unique_ptr<Stream>& each : streams_) {
      const bool early = each->high_priority && !each->busy && !each->waiting.empty();
      if (early && !each->waiting.front().waits()) return each.get();
    }
  }
  for (const std::unique_ptr<Stream>& each : streams_) {
    if (each->wanted <= each->done || each->busy) continue;
    Stream* stream = each.get();
    // What is waited for was enqueued before.
    while (!stream->busy && stream->waiting.front().waits()) {
      stream = stream->waiting.front().awaited;
    }
    if (!stream->busy) return stream;
  }
  return nullptr;
}

void SoftwareDriver::Work() {
  Executor executor({.order = options_.order});
  Executor::Use(&executor);
  const auto called = [this] {
    mutex_.AssertHeld();
    return stopping_ || (failure_ == kSuccess && NextWanted() != nullptr);
  };
  while (true) {
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&called));
      if (stopping_) break;
    }
    // From here on nothing that work may use is freed, and after a failure nothing begins.
    absl::MutexLock running(&memory_mutex_);
    std::function<bool()> work;
    Stream* stream = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      stream = failure_ == kSuccess ? NextWanted() : nullptr;
      if (stream == nullptr) continue;
      work = std::move(stream->waiting.front().run);
      const bool aside = stream->waiting.front().aside;
      stream->waiting.pop_front();
      if (aside) {
        stream->busy = true;
        stream->running_aside = std::move(work);
        continue;
      }
      running_ = true;
    }
    Guard(/*closed=*/false);
    const bool good = work == nullptr || work();
    Guard(/*closed=*/true);
    absl::MutexLock lock(&mutex_);
    running_ = false;
    ++stream->done;
    if (good) continue;
    failure_ = kLaunchFailure;
    report_ = executor.report();
  }
  Executor::Use(nullptr);
}

}  // namespace sherd::simt
