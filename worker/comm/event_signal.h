#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "common/check.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {

// Tells threads that wait in poll() that something has happened, once and for all. Thread-safe.
class EventSignal {
 public:
  EventSignal() { SHERD_CHECK(event_.valid()); }
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
  FileDescriptor event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace sherd
