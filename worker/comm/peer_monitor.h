#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_message.h"

namespace sherd {

// Listens on the links of a formed group, so that a member's end is known at once and not when an
// operation times out. Callbacks run on the monitor's thread.
class PeerMonitor {
 public:
  struct Callbacks {
    std::function<void(int rank, const LinkGoodbye& goodbye)> on_goodbye;
    // The link ended without a Goodbye: the process did.
    std::function<void(int rank)> on_lost;
  };

  // `links` by rank; -1 for none. They must outlive the monitor.
  PeerMonitor(std::vector<int> links, Callbacks callbacks);
  // False when the system has no descriptor to give: then nothing is ever heard.
  bool listens() const { return stop_.valid(); }
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;

 private:
  void Run();
  // False when the link has ended.
  bool Hear(int rank, int link);

  std::vector<int> links_;  // of the thread alone
  const Callbacks callbacks_;
  const FileDescriptor stop_;
  std::thread thread_;
};

}  // namespace sherd
