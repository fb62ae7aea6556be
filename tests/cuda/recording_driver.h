#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/driver.h"

namespace sherd {

// What was enqueued of copies, in the order of calls, and what each comes after because a stream,
// an event or what the host asked says so.
class EnqueuedCopies {
 public:
  struct Copy {
    CUstream_st* stream;
    const std::byte* to;
    const std::byte* from;
    size_t bytes;
    std::vector<bool> after;  // of those before it, by index
  };
  const std::vector<Copy>& copies() const { return copies_; }
  // Whether the device may do both at the same time.
  bool Independent(size_t a, size_t b) const {
    return a != b && !copies_[a < b ? b : a].after[a < b ? a : b];
  }
  // How often the host learned that an event had passed.
  int64_t waits_of_host() const { return waits_of_host_; }

 private:
  friend class RecordingDriver;
  std::vector<Copy> copies_;
  int64_t waits_of_host_ = 0;
};

// Hands every call on to another driver, and notes copies. One caller at a time.
class RecordingDriver final : public CudaDriver {
 public:
  RecordingDriver(std::unique_ptr<CudaDriver> driver, EnqueuedCopies& noted)
      : driver_(std::move(driver)), noted_(noted) {}

  std::string Text(Error error) override { return driver_->Text(error); }
  Error Malloc(void** memory, size_t bytes) override { return driver_->Malloc(memory, bytes); }
  Error Free(void* memory) override { return driver_->Free(memory); }
  Error MallocHost(void** memory, size_t bytes) override {
    return driver_->MallocHost(memory, bytes);
  }
  Error FreeHost(void* memory) override { return driver_->FreeHost(memory); }
  Error HostRegister(void* memory, size_t bytes) override {
    return driver_->HostRegister(memory, bytes);
  }
  Error HostUnregister(void* memory) override { return driver_->HostUnregister(memory); }
  Error MemGetInfo(size_t* free, size_t* total) override {
    return driver_->MemGetInfo(free, total);
  }
  Error SetDevice() override { return driver_->SetDevice(); }
  Error StreamCreate(CUstream_st** stream, bool high_priority) override {
    return driver_->StreamCreate(stream, high_priority);
  }
  Error StreamDestroy(CUstream_st* stream) override { return driver_->StreamDestroy(stream); }
  Error StreamWaitEvent(CUstream_st* stream, CUevent_st* event) override {
    Join(before_[stream], recorded_[event]);
    return driver_->StreamWaitEvent(stream, event);
  }
  Error EventCreate(CUevent_st** event) override { return driver_->EventCreate(event); }
  Error TimedEventCreate(CUevent_st** event) override { return driver_->TimedEventCreate(event); }
  Error EventElapsedTime(float* milliseconds, CUevent_st* begin, CUevent_st* end) override {
    return driver_->EventElapsedTime(milliseconds, begin, end);
  }
  Error EventDestroy(CUevent_st* event) override { return driver_->EventDestroy(event); }
  Error EventRecord(CUevent_st* event, CUstream_st* stream) override {
    recorded_[event] = before_[stream];
    return driver_->EventRecord(event, stream);
  }
  Error EventQuery(CUevent_st* event) override {
    const Error answer = driver_->EventQuery(event);
    if (answer == kSuccess) {
      ++noted_.waits_of_host_;
      Join(known_to_host_, recorded_[event]);
    }
    return answer;
  }
  Error MemcpyAsync(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    std::vector<bool>& before = before_[stream];
    Join(before, known_to_host_);
    before.resize(noted_.copies_.size());
    noted_.copies_.push_back({stream, static_cast<const std::byte*>(to),
                              static_cast<const std::byte*>(from), bytes, before});
    before.push_back(true);
    return driver_->MemcpyAsync(to, from, bytes, stream);
  }
  Error MemsetAsync(void* memory, int byte, size_t bytes, CUstream_st* stream) override {
    return driver_->MemsetAsync(memory, byte, bytes, stream);
  }
  bool Computes(const Product& product) override { return driver_->Computes(product); }
  Error Multiply(const Product& product, CUstream_st* stream, std::string* why) override {
    return driver_->Multiply(product, stream, why);
  }
  int64_t workspace_bytes() const override { return driver_->workspace_bytes(); }
  std::string model() const override { return driver_->model(); }
  std::string uuid() const override { return driver_->uuid(); }
  std::string pci_address() const override { return driver_->pci_address(); }
  std::string numerics_fingerprint() const override { return driver_->numerics_fingerprint(); }

 private:
  using Set = std::vector<bool>;  // of copies
  static void Join(Set& all, const Set& more) {
    if (all.size() < more.size()) all.resize(more.size());
    for (size_t i = 0; i < more.size(); ++i) all[i] = all[i] || more[i];
  }

  const std::unique_ptr<CudaDriver> driver_;
  EnqueuedCopies& noted_;
  // What comes before all that is enqueued next on a stream, behind an event, or by the host.
  std::map<CUstream_st*, Set> before_;
  std::map<CUevent_st*, Set> recorded_;
  Set known_to_host_;
};

}  // namespace sherd
