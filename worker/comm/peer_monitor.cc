#include "worker/comm/peer_monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "worker/comm/link_socket.h"

namespace sherd {

PeerMonitor::PeerMonitor(std::vector<int> links, Callbacks callbacks)
    : links_(std::move(links)),
      callbacks_(std::move(callbacks)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (listens()) thread_ = std::thread([this] { Run(); });
}

PeerMonitor::~PeerMonitor() {
  if (!listens()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void PeerMonitor::Run() {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  // poll passes over negative descriptors, so places and ranks correspond.
  for (const int link : links_) polled.push_back({link, POLLIN, 0});
  while (true) {
    ::poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) return;
    for (size_t place = 1; place < polled.size(); ++place) {
      pollfd& link = polled[place];
      if (link.revents != 0 && !Hear(static_cast<int>(place) - 1, link.fd)) link.fd = -1;
    }
  }
}

bool PeerMonitor::Hear(int rank, int link) {
  const ReceivedLinkMessage received = ReceiveLinkMessage(link);
  if (received.input == LinkInput::kNothing) return true;
  const auto* goodbye =
      received.input == LinkInput::kMessage ? std::get_if<LinkGoodbye>(&received.message) : nullptr;
  if (goodbye != nullptr) {
    callbacks_.on_goodbye(rank, *goodbye);
  } else {
    callbacks_.on_lost(rank);
  }
  return false;
}

}  // namespace sherd
