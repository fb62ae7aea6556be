#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status_macros.h"
#include "kernels/cuda/checked.h"
#include "kernels/cuda/wait.h"

namespace sherd {

Staging::~Staging() {
  for (Piece& piece : pieces_) {
    // Nothing may travel into memory that is gone. After a failure there is nobody to tell.
    Await(piece).IgnoreError();
    if (piece.event != nullptr) driver_.EventDestroy(piece.event);
    if (piece.memory != nullptr) driver_.FreeHost(piece.memory);
  }
}

absl::Status Staging::Open() {
  for (Piece& piece : pieces_) {
    SHERD_RETURN_IF_ERROR(
        Checked(driver_, driver_.MallocHost(&piece.memory, kPieceBytes), "cudaMallocHost"));
    SHERD_RETURN_IF_ERROR(Checked(driver_, driver_.EventCreate(&piece.event), "cudaEventCreate"));
  }
  return absl::OkStatus();
}

absl::Status Staging::Await(Piece& piece) {
  if (!std::exchange(piece.travels, false)) return absl::OkStatus();
  return AwaitEvent(driver_, piece.event, limit_);
}

absl::Status Staging::Finish() {
  absl::Status status;
  for (Piece& piece : pieces_) status.Update(Await(piece));
  return status;
}

absl::Status Staging::Send(Piece& piece, void* to, const void* from, int64_t bytes) {
  SHERD_RETURN_IF_ERROR(Checked(driver_,
                                driver_.MemcpyAsync(to, from, static_cast<size_t>(bytes), stream_),
                                "cudaMemcpyAsync"));
  SHERD_RETURN_IF_ERROR(
      Checked(driver_, driver_.EventRecord(piece.event, stream_), "cudaEventRecord"));
  piece.travels = true;
  return absl::OkStatus();
}

absl::Status Staging::In(void* to, const void* from, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - begin);
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    SHERD_RETURN_IF_ERROR(Await(piece));
    std::memcpy(piece.memory, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(count));
    SHERD_RETURN_IF_ERROR(Send(piece, static_cast<std::byte*>(to) + begin, piece.memory, count));
  }
  return absl::OkStatus();
}

absl::Status Staging::Out(void* to, const void* from, int64_t bytes) {
  struct Part {
    Piece* piece = nullptr;
    int64_t begin = 0, bytes = 0;
  } before;
  const auto empty = [&](const Part& part) -> absl::Status {
    if (part.piece == nullptr) return absl::OkStatus();
    SHERD_RETURN_IF_ERROR(Await(*part.piece));
    std::memcpy(static_cast<std::byte*>(to) + part.begin, part.piece->memory,
                static_cast<size_t>(part.bytes));
    return absl::OkStatus();
  };
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const Part part{&pieces_[next_], begin, std::min(kPieceBytes, bytes - begin)};
    next_ = (next_ + 1) % pieces_.size();
    SHERD_RETURN_IF_ERROR(Await(*part.piece));
    SHERD_RETURN_IF_ERROR(Send(*part.piece, part.piece->memory,
                               static_cast<const std::byte*>(from) + begin, part.bytes));
    SHERD_RETURN_IF_ERROR(empty(before));
    before = part;
  }
  return empty(before);
}

}  // namespace sherd
