#pragma once

#include <memory>

#include "absl/status/statusor.h"

namespace sherd {

// How a supervisor knows whether the worker process of a slot has a coordinator: the process writes
// a byte whenever that changes. The supervisor's side; not thread-safe.
class RegistrationPipe {
 public:
  // kResourceExhausted when the system has no descriptors to give.
  static absl::StatusOr<std::unique_ptr<RegistrationPipe>> Open();
  ~RegistrationPipe();
  RegistrationPipe(const RegistrationPipe&) = delete;
  RegistrationPipe& operator=(const RegistrationPipe&) = delete;

  // What the child is to get. Close it here once it has.
  int child_end() const { return child_end_; }
  void CloseChildEnd();
  // Becomes readable when the child has said something, for poll(); -1 once it has closed its end.
  int descriptor() const { return own_end_; }
  // What the child has said last: false before its first word and after its end. Never blocks.
  bool Registered();

 private:
  RegistrationPipe(int own_end, int child_end) : own_end_(own_end), child_end_(child_end) {}

  int own_end_;
  int child_end_;
  bool registered_ = false;
};

// The child's side. Never blocks; does nothing when nobody reads any more.
void TellRegistered(int descriptor, bool registered);

}  // namespace sherd
