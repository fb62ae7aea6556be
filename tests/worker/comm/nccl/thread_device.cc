#include "thread_device.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/fold.h"

namespace sherd {

ThreadStream::ThreadStream(std::atomic<int>* enqueued)
    : enqueued_(enqueued), thread_([this] { Work(); }) {}

ThreadStream::~ThreadStream() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

CUstream_st* ThreadStream::handle() const {
  return reinterpret_cast<CUstream_st*>(const_cast<ThreadStream*>(this));
}

ThreadStream& ThreadStream::Of(CUstream_st* handle) {
  return *reinterpret_cast<ThreadStream*>(handle);
}

std::string ThreadStream::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

void ThreadStream::Fail(std::string failure) {
  absl::MutexLock lock(&mutex_);
  failure_ = std::move(failure);
}

void ThreadStream::Record(DeviceEvent& event) {
  const auto state = static_cast<ThreadEvent&>(event).state;
  const int64_t number = ++state->recorded;
  Enqueue([state, number] {
    state->nanoseconds.store(std::chrono::steady_clock::now().time_since_epoch().count());
    state->passed.store(number);
  });
}

void ThreadStream::Copy(void* to, const void* from, int64_t bytes) {
  Enqueue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

void ThreadStream::Clear(void* to, int64_t bytes) {
  if (bytes > 0) Enqueue([=] { std::memset(to, 0, static_cast<size_t>(bytes)); });
}

void ThreadStream::AddRounded(void* sum, const void* value, DType dtype, int64_t elements) {
  Enqueue([=] { AddRoundedSerial(sum, value, dtype, elements); });
}

void ThreadStream::Enqueue(std::function<void()> work) {
  if (enqueued_ != nullptr) ++*enqueued_;
  absl::MutexLock lock(&mutex_);
  if (failure_.empty()) waiting_.push_back(std::move(work));
}

void ThreadStream::Work() {
  const auto something_to_do = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopping_ || !waiting_.empty();
  };
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&something_to_do));
    if (waiting_.empty()) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    mutex_.Unlock();
    work();
    mutex_.Lock();
  }
}

absl::Status ThreadDevice::BindThread() {
  absl::MutexLock lock(&mutex_);
  bound_.insert(std::this_thread::get_id());
  return absl::OkStatus();
}

int ThreadDevice::bound_threads() {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(bound_.size());
}

absl::StatusOr<std::unique_ptr<DeviceStream>> ThreadDevice::NewStream() {
  auto stream = std::make_unique<ThreadStream>(&enqueued_);
  last_stream_ = stream.get();
  if (first_work_ != nullptr) stream->Enqueue(first_work_);
  return stream;
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> ThreadDevice::NewEvent() {
  return std::make_unique<ThreadEvent>();
}

void ThreadDevice::WhenNextPassed(std::function<void()> call) {
  absl::MutexLock lock(&mutex_);
  when_passed_ = std::move(call);
}

bool ThreadDevice::Passed(const DeviceEvent& event) {
  if (!static_cast<const ThreadEvent&>(event).passed()) return false;
  std::function<void()> call;
  {
    absl::MutexLock lock(&mutex_);
    call = std::exchange(when_passed_, nullptr);
  }
  if (call != nullptr) call();
  return true;
}

double ThreadDevice::Seconds(const DeviceEvent& begin, const DeviceEvent& end) {
  const auto at = [](const DeviceEvent& event) {
    return static_cast<const ThreadEvent&>(event).state->nanoseconds.load();
  };
  return static_cast<double>(at(end) - at(begin)) * 1e-9;
}

}  // namespace sherd
