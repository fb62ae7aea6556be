#include "client/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/check.h"

namespace sherd {
namespace {

constexpr int kTickMs = 100;

int BlockAndOpen(sigset_t& blocked_before) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&handled, signal);
  SHERD_CHECK(pthread_sigmask(SIG_BLOCK, &handled, &blocked_before) == 0);
  return signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

Interrupts::Interrupts() : signals_(BlockAndOpen(blocked_before_)), stop_(eventfd(0, EFD_CLOEXEC)) {
  SHERD_CHECK(signals_ >= 0 && stop_ >= 0);
}

Interrupts::~Interrupts() {
  StopListening();
  close(signals_);
  close(stop_);
}

void Interrupts::StopListening() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  SHERD_CHECK(write(stop_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  // What is left to say may have to wait for a reader; but not for long after a signal.
  if (interrupted()) return;
  SHERD_CHECK(pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr) == 0);
}

void Interrupts::Listen(Callbacks callbacks) {
  thread_ = std::thread([this, callbacks = std::move(callbacks)] { Serve(callbacks); });
}

void Interrupts::Serve(const Callbacks& callbacks) {
  while (true) {
    pollfd watched[] = {{stop_, POLLIN, 0}, {signals_, POLLIN, 0}};
    poll(watched, 2, kTickMs);
    if (watched[0].revents != 0) return;
    if (watched[1].revents != 0) TakeSignal(callbacks);
    callbacks.on_tick();
  }
}

void Interrupts::TakeSignal(const Callbacks& callbacks) {
  signalfd_siginfo taken;
  if (read(signals_, &taken, sizeof(taken)) != sizeof(taken)) return;
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    first = !std::exchange(interrupted_, true);
  }
  if (first) {
    callbacks.on_first();
  } else {
    callbacks.on_repeated();
  }
}

bool Interrupts::interrupted() const {
  absl::MutexLock lock(&mutex_);
  return interrupted_;
}

bool Interrupts::InterruptedWithin(absl::Duration duration) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&interrupted_), duration);
}

}  // namespace sherd
