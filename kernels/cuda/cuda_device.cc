#include "kernels/cuda/cuda_device.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/checked.h"
#include "kernels/cuda/cuda_ops.h"

namespace sherd {

// An event that was recorded on the compute stream.
class CudaDevice::EventMark final : public DeviceMark {
 public:
  EventMark(CudaDevice& device, CUevent_st* event) : device_(device), event_(event) {}
  ~EventMark() override {
    if (event_ != nullptr) device_.GiveEvent(event_);
  }
  bool passed() override {
    if (event_ == nullptr || device_.failed()) return true;
    const CudaDriver::Error answer = device_.driver_->EventQuery(event_);
    if (answer == CudaDriver::kNotReady) {
      if (absl::FromChrono(Clock::now() - set_) < device_.hang_limit_) return false;
      device_.Remember(HangError(device_.hang_limit_));
      return true;
    }
    device_.Remember(Checked(*device_.driver_, answer, "cudaEventQuery"));
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  CudaDevice& device_;
  CUevent_st* const event_;  // null: none could be recorded
  const Clock::time_point set_ = Clock::now();
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(std::unique_ptr<CudaDriver> driver,
                                                             std::string name,
                                                             absl::Duration hang_limit) {
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(std::move(driver), std::move(name), hang_limit));
  SHERD_RETURN_IF_ERROR(device->OpenStreams());
  return device;
}

CudaDevice::CudaDevice(std::unique_ptr<CudaDriver> driver, std::string name,
                       absl::Duration hang_limit)
    : driver_(std::move(driver)),
      name_(std::move(name)),
      model_(driver_->model()),
      fingerprint_(driver_->numerics_fingerprint()),
      hang_limit_(hang_limit),
      locked_memory_(
          *driver_, [this] { return failed(); },
          [this](const absl::Status& status) { Remember(status); },
          [this] {
            Remember(Quiet());
            return !hangs_;
          }),
      arena_(*driver_, [this] { return Quiet(); }) {}

absl::Status CudaDevice::OpenStreams() {
  size_t free = 0, total = 0;
  SHERD_RETURN_IF_ERROR(
      Named(Checked(*driver_, driver_->MemGetInfo(&free, &total), "cudaMemGetInfo")));
  memory_bytes_ = static_cast<int64_t>(total);
  // Copies of little at a time go ahead of long kernels.
  SHERD_RETURN_IF_ERROR(Named(Checked(
      *driver_, driver_->StreamCreate(&compute_, /*high_priority=*/false), "cudaStreamCreate")));
  for (CUstream_st** const stream : {&communication_, &in_, &out_}) {
    SHERD_RETURN_IF_ERROR(Named(Checked(
        *driver_, driver_->StreamCreate(stream, /*high_priority=*/true), "cudaStreamCreate")));
  }
  streams_ = std::make_unique<CudaStreams>(*this);
  SHERD_RETURN_IF_ERROR(Named(compute_staging_.emplace(*driver_, compute_, hang_limit_).Open()));
  absl::MutexLock lock(&fetch_mutex_);
  return Named(fetch_staging_.emplace(*driver_, communication_, hang_limit_).Open());
}

CudaDevice::~CudaDevice() {
  // Nobody is left who could be told of errors.
  Quiet().IgnoreError();
  compute_staging_.reset();
  fetch_staging_.reset();
  for (CUevent_st* const event : free_events_) driver_->EventDestroy(event);
  for (CUstream_st** const stream : {&compute_, &communication_, &in_, &out_}) {
    if (*stream != nullptr) driver_->StreamDestroy(std::exchange(*stream, nullptr));
  }
}

absl::Status CudaDevice::Quiet() {
  absl::Status status;
  for (CUstream_st* const stream : {compute_, communication_, in_, out_}) {
    if (stream != nullptr && !hangs_) status.Update(AwaitStream(stream));
  }
  return status;
}

absl::Status CudaDevice::AwaitStream(CUstream_st* stream) {
  SHERD_ASSIGN_OR_RETURN(CUevent_st* const event, TakeEvent());
  absl::Status status = Checked(*driver_, driver_->EventRecord(event, stream), "cudaEventRecord");
  if (status.ok()) status = AwaitEvent(*driver_, event, hang_limit_);
  GiveEvent(event);
  if (absl::IsDeadlineExceeded(status)) hangs_ = true;
  return status;
}

absl::Status CudaDevice::Named(const absl::Status& error) const {
  if (error.ok()) return error;
  return absl::Status(error.code(), absl::StrCat(name_, ": ", error.message()));
}

void CudaDevice::Remember(const absl::Status& status) const {
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = Named(status);
  if (absl::IsDeadlineExceeded(status)) hangs_ = true;
  failed_.store(true, std::memory_order_release);
}

absl::Status CudaDevice::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::optional<int64_t> CudaDevice::most_head_channels() const {
  return CudaKernels::kMostHeadChannels;
}

int64_t CudaDevice::free_bytes() const {
  size_t free = 0, total = 0;
  const absl::Status told = Checked(*driver_, driver_->MemGetInfo(&free, &total), "cudaMemGetInfo");
  Remember(told);
  if (!told.ok()) return memory_bytes_;
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(free) + arena_.slab_bytes() - arena_.used_bytes();
}

int64_t CudaDevice::slab_bytes() const {
  absl::MutexLock lock(&mutex_);
  return arena_.slab_bytes();
}

int64_t CudaDevice::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return arena_.used_bytes();
}

void CudaDevice::Reserve(int64_t bytes) {
  Remember([&] {
    absl::MutexLock lock(&mutex_);
    // What an earlier job had no memory for has gone with it; what else failed has not.
    if (absl::IsResourceExhausted(status_)) {
      status_ = absl::OkStatus();
      failed_.store(false, std::memory_order_release);
    }
    return arena_.Reserve(bytes);
  }());
}

void CudaDevice::GiveBack() {
  Remember([&] {
    absl::MutexLock lock(&mutex_);
    return arena_.DropEmptySlabs();
  }());
}

std::byte* CudaDevice::Take(Pool pool, int64_t bytes) {
  if (bytes == 0 || failed()) return nullptr;
  absl::StatusOr<std::byte*> piece = [&] {
    absl::MutexLock lock(&mutex_);
    return arena_.Take(pool, bytes);
  }();
  Remember(piece.status());
  if (!piece.ok()) return nullptr;
  Remember(Checked(*driver_, driver_->MemsetAsync(*piece, 0, static_cast<size_t>(bytes), compute_),
                   "cudaMemsetAsync"));
  return *piece;
}

void CudaDevice::Give(std::byte* memory) {
  if (memory == nullptr) return;
  absl::MutexLock lock(&mutex_);
  arena_.Give(memory);
}

void CudaDevice::CopyIn(void* to, const void* from, int64_t bytes) {
  if (!failed()) Remember(compute_staging_->In(to, from, bytes));
}

void CudaDevice::CopyOut(void* to, const void* from, int64_t bytes) {
  if (!failed()) Remember(compute_staging_->Out(to, from, bytes));
}

void CudaDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  if (failed() || bytes == 0 || to == from) return;
  Remember(Checked(*driver_, driver_->MemcpyAsync(to, from, static_cast<size_t>(bytes), compute_),
                   "cudaMemcpyAsync"));
}

absl::Status CudaDevice::Synchronize() {
  for (CUstream_st* const stream : {compute_, in_, out_}) {
    if (!failed() && (stream == compute_ || copies_)) Remember(AwaitStream(stream));
  }
  copies_ = false;
  return status();
}

absl::StatusOr<CUevent_st*> CudaDevice::TakeEvent() {
  {
    absl::MutexLock lock(&events_mutex_);
    if (!free_events_.empty()) {
      CUevent_st* const event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  CUevent_st* event = nullptr;
  SHERD_RETURN_IF_ERROR(Checked(*driver_, driver_->EventCreate(&event), "cudaEventCreate"));
  return event;
}

void CudaDevice::GiveEvent(CUevent_st* event) {
  absl::MutexLock lock(&events_mutex_);
  free_events_.push_back(event);
}

std::shared_ptr<DeviceMark> CudaDevice::Mark() {
  if (failed()) return std::make_shared<EventMark>(*this, nullptr);
  absl::StatusOr<CUevent_st*> event = TakeEvent();
  Remember(event.status());
  if (!event.ok()) return std::make_shared<EventMark>(*this, nullptr);
  Remember(Checked(*driver_, driver_->EventRecord(*event, compute_), "cudaEventRecord"));
  return std::make_shared<EventMark>(*this, *event);
}

absl::Status CudaDevice::Fetch(void* to, const void* from, int64_t bytes) {
  absl::MutexLock lock(&fetch_mutex_);
  if (!failed()) Remember(fetch_staging_->Out(to, from, bytes));
  return status();
}

absl::Status CudaDevice::Deliver(void* to, const void* from, int64_t bytes) {
  absl::MutexLock lock(&fetch_mutex_);
  if (!failed()) {
    Remember(fetch_staging_->In(to, from, bytes));
    if (!failed()) Remember(fetch_staging_->Finish());
  }
  return status();
}

std::unique_ptr<Ops> CudaDevice::MakeOps(const DeviceOpsOptions& options) {
  return std::make_unique<CudaOps>(*this, options);
}

}  // namespace sherd
