#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace sherd::simt {

// A stack that code runs on, and where that code stopped. All fibers of an executor run on one
// thread of the operating system, and only one at a time. The sanitizers are told of every switch.
class Fiber {
 public:
  // The stack that the caller runs on.
  Fiber();
  // A stack of its own, on which Switch first enters `entry`, which must not return.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Switch enters `entry` anew; what the stack holds is forgotten. Of a fiber that was
  // left in the middle.
  void Restart();
  // As the sanitizers see it another fiber: nothing that ran on it before is known.
  void Forget();
  // Leaves `from`, which is running, for `to`; returns when something switches back. `ends`:
  // nothing will.
  static void Switch(Fiber& from, Fiber& to, bool ends);
  // First thing on a stack that was entered by Switch.
  static void Entered();

 private:
  void Prepare();

  void (*const entry_)();
  std::byte* stack_ = nullptr;  // above a page that must not be touched
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // the address sanitizer's
  [[maybe_unused]] void* shadow_ = nullptr;      // the thread sanitizer's
#if defined(__x86_64__)
  void* saved_ = nullptr;
#else
  ucontext_t saved_;
#endif
};

}  // namespace sherd::simt
