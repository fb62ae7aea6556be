#include "client/standard_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "absl/time/clock.h"

namespace sherd {
namespace {

// A descriptor that polls as writable takes this much without waiting: it is the least that a pipe
// has room for then.
constexpr size_t kChunkBytes = 4096;
constexpr int kTickMs = 50;

bool HasRoom(int fd, int timeout_ms) {
  pollfd watched = {fd, POLLOUT, 0};
  // What is no longer open says so when it is written to.
  return poll(&watched, 1, timeout_ms) > 0;
}

}  // namespace

void PatientBuffer::LosePatience(absl::Duration patience) {
  patience_ms_ = absl::ToInt64Milliseconds(patience);
}

int PatientBuffer::overflow(int character) {
  if (character == traits_type::eof()) return traits_type::not_eof(character);
  pending_ += static_cast<char>(character);
  if (pending_.size() >= kChunkBytes && !Flush()) return traits_type::eof();
  return character;
}

std::streamsize PatientBuffer::xsputn(const char* text, std::streamsize bytes) {
  pending_.append(text, static_cast<size_t>(bytes));
  if (pending_.size() >= kChunkBytes && !Flush()) return 0;
  return bytes;
}

int PatientBuffer::sync() { return Flush() ? 0 : -1; }

bool PatientBuffer::Flush() {
  size_t written = 0;
  while (written < pending_.size() && !failed_ && !given_up_) {
    if (!AwaitRoom()) {
      given_up_ = true;
      break;
    }
    const size_t bytes = std::min(kChunkBytes, pending_.size() - written);
    const ssize_t taken = write(fd_, pending_.data() + written, bytes);
    if (taken >= 0) {
      written += static_cast<size_t>(taken);
    } else if (errno != EINTR && errno != EAGAIN) {
      failed_ = true;
    }
  }
  pending_.clear();
  return !failed_;
}

bool PatientBuffer::AwaitRoom() const {
  const absl::Time start = absl::Now();
  while (!HasRoom(fd_, kTickMs)) {
    const int64_t patience_ms = patience_ms_;
    if (patience_ms != kForEver && absl::Now() - start >= absl::Milliseconds(patience_ms)) {
      return false;
    }
  }
  return true;
}

StandardOutput::StandardOutput()
    : out_(STDOUT_FILENO),
      error_(STDERR_FILENO),
      own_out_(std::cout.rdbuf(&out_)),
      own_error_(std::cerr.rdbuf(&error_)) {}

StandardOutput::~StandardOutput() {
  std::cout.flush();
  std::cerr.flush();
  std::cout.rdbuf(own_out_);
  std::cerr.rdbuf(own_error_);
  if (out_.failed()) std::cout.setstate(std::ios_base::badbit);
}

void StandardOutput::LosePatience(absl::Duration patience) {
  out_.LosePatience(patience);
  error_.LosePatience(patience);
}

void SayIfHeard(const char* sentence) {
  if (!HasRoom(STDERR_FILENO, 0)) return;
  // Nothing can be done about a sentence that cannot be said.
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, sentence, std::strlen(sentence));
}

}  // namespace sherd
