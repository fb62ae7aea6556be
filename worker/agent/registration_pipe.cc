#include "worker/agent/registration_pipe.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

constexpr char kRegistered = '1';
constexpr char kUnregistered = '0';

void Close(int& descriptor) {
  if (const int open = std::exchange(descriptor, -1); open >= 0) close(open);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegistrationPipe>> RegistrationPipe::Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a pipe: ", strerror(errno)));
  }
  return std::unique_ptr<RegistrationPipe>(new RegistrationPipe(ends[0], ends[1]));
}

RegistrationPipe::~RegistrationPipe() {
  Close(own_end_);
  Close(child_end_);
}

void RegistrationPipe::CloseChildEnd() { Close(child_end_); }

bool RegistrationPipe::Registered() {
  char words[64];
  while (own_end_ >= 0) {
    const ssize_t count = read(own_end_, words, sizeof(words));
    if (count > 0) {
      registered_ = words[count - 1] == kRegistered;
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      break;
    } else {
      registered_ = false;
      Close(own_end_);
    }
  }
  return registered_;
}

void TellRegistered(int descriptor, bool registered) {
  const char word = registered ? kRegistered : kUnregistered;
  while (write(descriptor, &word, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace sherd
