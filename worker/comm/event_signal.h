#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {

// Tells threads that wait in poll() that something has happened, once and for all. Thread-safe.
class EventSignal {
 public:
  // kResourceExhausted when the process has no descriptor left for it.
  static absl::StatusOr<EventSignal> Make() {
    FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.valid()) return absl::ResourceExhaustedError("the process has no descriptor left");
    return EventSignal(std::move(event));
  }

  void Set() const {
    const uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));
  }
  bool is_set() const {
    pollfd polled = {event_.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
  }
  // Readable from Set on; nobody reads it.
  int descriptor() const { return event_.get(); }

 private:
  explicit EventSignal(FileDescriptor event) : event_(std::move(event)) {}

  FileDescriptor event_;
};

}  // namespace sherd
