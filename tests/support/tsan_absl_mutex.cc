// Debian's Abseil is built without ThreadSanitizer, which therefore cannot see that its mutexes
// order anything. The linker replaces our calls of them (--wrap) by these, which tell it.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);

namespace {

using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Notification;

// Abseil's own lock-order graph is not instrumented either, and every mutex of the process writes
// it. The sanitizer looks for lock cycles itself.
[[maybe_unused]] const bool kNoLockGraph = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

// The body of a call that may give the mutex away: what was written before is seen by the next
// holder, and the conditions of waiters, which Abseil evaluates on whatever thread unlocks, are not
// reads of this thread.
template <typename Call>
auto Releasing(const void* mutex, const Call& call) {
  __tsan_release(const_cast<void*>(mutex));
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  struct End {
    ~End() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  } end;
  return call();
}

// The body of a call that returns holding the mutex.
template <typename Call>
auto Acquiring(const void* mutex, const Call& call) {
  struct End {
    const void* mutex;
    ~End() { __tsan_acquire(const_cast<void*>(mutex)); }
  } end{mutex};
  return call();
}

template <typename Call>
auto Waiting(const void* mutex, const Call& call) {
  return Acquiring(mutex, [&] { return Releasing(mutex, call); });
}

}  // namespace

#define SHERD_REAL(name) __real_##name
#define SHERD_WRAP(name) __wrap_##name

extern "C" {

#define SHERD_LOCK(name)                          \
  void SHERD_REAL(name)(Mutex*);                  \
  void SHERD_WRAP(name)(Mutex * mu) {             \
    Acquiring(mu, [&] { SHERD_REAL(name)(mu); }); \
  }
#define SHERD_UNLOCK(name)                        \
  void SHERD_REAL(name)(Mutex*);                  \
  void SHERD_WRAP(name)(Mutex * mu) {             \
    Releasing(mu, [&] { SHERD_REAL(name)(mu); }); \
  }
SHERD_LOCK(_ZN4absl7debian35Mutex4LockEv)
SHERD_LOCK(_ZN4absl7debian35Mutex10ReaderLockEv)
SHERD_UNLOCK(_ZN4absl7debian35Mutex6UnlockEv)
SHERD_UNLOCK(_ZN4absl7debian35Mutex12ReaderUnlockEv)

#define SHERD_AWAIT(name)                                         \
  void SHERD_REAL(name)(Mutex*, const Condition&);                \
  void SHERD_WRAP(name)(Mutex * mu, const Condition& condition) { \
    Waiting(mu, [&] { SHERD_REAL(name)(mu, condition); });        \
  }
SHERD_AWAIT(_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE)
SHERD_AWAIT(_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE)

#define SHERD_AWAIT_UNTIL(name, Limit)                                          \
  bool SHERD_REAL(name)(Mutex*, const Condition&, Limit);                       \
  bool SHERD_WRAP(name)(Mutex * mu, const Condition& condition, Limit limit) {  \
    return Waiting(mu, [&] { return SHERD_REAL(name)(mu, condition, limit); }); \
  }
SHERD_AWAIT_UNTIL(_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE,
                  Duration)
SHERD_AWAIT_UNTIL(_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE, absl::Time)

void SHERD_REAL(_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE)(CondVar*, Mutex*);
void SHERD_WRAP(_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE)(CondVar* variable, Mutex* mu) {
  Waiting(mu, [&] { SHERD_REAL(_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE)(variable, mu); });
}
bool SHERD_REAL(_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(CondVar*,
                                                                                      Mutex*,
                                                                                      Duration);
bool SHERD_WRAP(_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(
    CondVar* variable, Mutex* mu, Duration limit) {
  return Waiting(mu, [&] {
    return SHERD_REAL(_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(
        variable, mu, limit);
  });
}

void SHERD_REAL(_ZN4absl7debian312Notification6NotifyEv)(Notification*);
void SHERD_WRAP(_ZN4absl7debian312Notification6NotifyEv)(Notification* notification) {
  Releasing(notification, [&] {
    SHERD_REAL(_ZN4absl7debian312Notification6NotifyEv)(notification);
  });
}
void SHERD_REAL(_ZNK4absl7debian312Notification19WaitForNotificationEv)(const Notification*);
void SHERD_WRAP(_ZNK4absl7debian312Notification19WaitForNotificationEv)(
    const Notification* notification) {
  Acquiring(notification, [&] {
    SHERD_REAL(_ZNK4absl7debian312Notification19WaitForNotificationEv)(notification);
  });
}

}  // extern "C"

// Debian's Abseil fills its table of error texts under a guard that the sanitizer cannot see. Tests
// that link gRPC have a longer list.
extern "C" __attribute__((weak)) const char* __tsan_default_suppressions() {
  return "race:base_internal::StrError\n";
}
