#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "sherd/v1/worker.pb.h"

namespace sherd {

// The reports of one incarnation that the coordinator has not acknowledged. A report is numbered
// when it is first sent, so what is dropped before leaves no gap in the numbers. Not thread-safe.
class ReportBuffer {
 public:
  // Holds more than `capacity` only when all of it is milestones or was sent before.
  explicit ReportBuffer(size_t capacity) : capacity_(capacity) {}

  // Appends; returns false when the oldest unsent step, evaluation or log line (perhaps this one)
  // was dropped to make room.
  bool Add(v1::SessionRequest report);
  // The oldest report that was not sent on the current stream, numbered; nullptr when there is
  // none. The next call gives the next one. Valid until the buffer is changed.
  const v1::SessionRequest* NextToSend();
  bool HasUnsent() const { return sent_ < reports_.size(); }
  // The coordinator has taken over every report up to this number.
  void Acknowledge(uint64_t sequence);
  // A new stream begins: everything that is not acknowledged is sent again.
  void Rewind() { sent_ = 0; }
  size_t size() const { return reports_.size(); }

 private:
  size_t capacity_;
  // Numbered ones first, in order.
  std::deque<v1::SessionRequest> reports_;
  size_t numbered_ = 0;
  size_t sent_ = 0;  // on the current stream; at most numbered_
  uint64_t last_sequence_ = 0;
};

}  // namespace sherd
