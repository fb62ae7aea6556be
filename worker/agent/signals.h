#pragma once

#include <functional>
#include <thread>

namespace sherd {

// Blocks SIGTERM, SIGINT and SIGPIPE for the calling thread and all threads that it starts later.
// Call first in main.
void BlockSignals();

// Hears SIGTERM and SIGINT, which must be blocked in every thread, on a thread of its own.
class SignalWatcher {
 public:
  // `on_signal` is called with the name of each signal, "SIGTERM".
  explicit SignalWatcher(std::function<void(const char*)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  int signals_ = -1;
  int stop_ = -1;
  std::thread thread_;
};

}  // namespace sherd
