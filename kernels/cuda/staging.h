#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/cuda/driver.h"

namespace sherd {

// Copies between pageable host memory and the device on one stream, through two page-locked pieces
// in turn: while one travels the other is filled or emptied. One caller at a time.
class Staging {
 public:
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

  // Neither is owned; both outlive the object. No wait is longer than `limit`: HangError (wait.h).
  Staging(CudaDriver& driver, CUstream_st* stream, absl::Duration limit)
      : driver_(driver), stream_(stream), limit_(limit) {}
  ~Staging();
  Staging(const Staging&) = delete;

  // Before anything else. Errors of the driver.
  absl::Status Open();
  // Enqueues; `from` may be reused on return.
  absl::Status In(void* to, const void* from, int64_t bytes);
  // Waits for what In has enqueued.
  absl::Status Finish();
  // After what is enqueued on the stream; it is there on return.
  absl::Status Out(void* to, const void* from, int64_t bytes);

 private:
  struct Piece {
    void* memory = nullptr;
    CUevent_st* event = nullptr;
    bool travels = false;  // until the event
  };
  absl::Status Await(Piece& piece);
  absl::Status Send(Piece& piece, void* to, const void* from, int64_t bytes);

  CudaDriver& driver_;
  CUstream_st* const stream_;
  const absl::Duration limit_;
  std::array<Piece, 2> pieces_;
  size_t next_ = 0;
};

}  // namespace sherd
