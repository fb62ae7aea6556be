#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <streambuf>
#include <string>

#include "absl/time/time.h"

namespace sherd {

// Writes what a stream is given to a file descriptor, and waits for its reader only as long as it
// may: a pipe that nobody empties must not outlast the signal that ends the program.
class PatientBuffer : public std::streambuf {
 public:
  // `fd` stays the caller's.
  explicit PatientBuffer(int fd) : fd_(fd) {}

  // From any thread. From now on a reader that takes nothing for `patience` is given up: the rest
  // is dropped without an error.
  void LosePatience(absl::Duration patience);
  // An error of the descriptor, as of a full disk, was met.
  bool failed() const { return failed_; }

 protected:
  int overflow(int character) override;
  std::streamsize xsputn(const char* text, std::streamsize bytes) override;
  int sync() override;

 private:
  static constexpr int64_t kForEver = -1;

  bool Flush();
  // Until the descriptor takes bytes; false when its reader was given up.
  bool AwaitRoom() const;

  const int fd_;
  std::atomic<int64_t> patience_ms_ = kForEver;
  std::string pending_;
  bool given_up_ = false;
  bool failed_ = false;
};

// Has std::cout and std::cerr write through patient buffers as long as it lives. Make one, on the
// main thread, while no other thread writes to them.
class StandardOutput {
 public:
  StandardOutput();
  // The streams have their own buffers again; std::cout is bad if its writes have failed.
  ~StandardOutput();
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // From any thread.
  void LosePatience(absl::Duration patience);

 private:
  PatientBuffer out_;
  PatientBuffer error_;
  std::streambuf* const own_out_;
  std::streambuf* const own_error_;
};

// Writes a short sentence to standard error, or nothing if that would have to wait. From any
// thread.
void SayIfHeard(const char* sentence);

}  // namespace sherd
