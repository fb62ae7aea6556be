#include "worker/agent/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/check.h"

namespace sherd {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  // Whoever started the process with SIGINT ignored wants it so; blocked, it would be heard still.
  struct sigaction interrupt = {};
  SHERD_CHECK(sigaction(SIGINT, nullptr, &interrupt) == 0);
  if (interrupt.sa_handler != SIG_IGN) sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockSignals() {
  sigset_t set = StopSignals();
  sigaddset(&set, SIGPIPE);
  SHERD_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
}

SignalWatcher::SignalWatcher(std::function<void(const char*)> on_signal) {
  const sigset_t set = StopSignals();
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  SHERD_CHECK(signals_ >= 0 && stop_ >= 0);
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    pollfd sources[] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    while (poll(sources, 2, -1) >= 0 || errno == EINTR) {
      if (sources[1].revents != 0) return;
      signalfd_siginfo received;
      if (sources[0].revents == 0 ||
          read(signals_, &received, sizeof(received)) != sizeof(received)) {
        continue;
      }
      on_signal(received.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
    }
  });
}

SignalWatcher::~SignalWatcher() {
  eventfd_write(stop_, 1);
  thread_.join();
  close(signals_);
  close(stop_);
}

}  // namespace sherd
