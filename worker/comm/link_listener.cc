#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <thread>
#include <vector>

#include "common/log.h"
#include "common/status_macros.h"
#include "worker/comm/data_link.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_inbox.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

// A link that has not said who it is yet.
struct Newcomer {
  FileDescriptor link;
  Deadline deadline;
};
constexpr size_t kMaxNewcomers = 256;
// Members send their Hello with the connection.
constexpr absl::Duration kHelloTimeout = absl::Seconds(10);
constexpr int kHousekeepingMs = 250;

// Accepts links on its own thread and parks those that introduce themselves in the inbox.
class LinkListener final : public DataListener {
 public:
  LinkListener(FileDescriptor socket, FileDescriptor stop, std::string address)
      : socket_(std::move(socket)),
        stop_(std::move(stop)),
        address_(std::move(address)),
        inbox_(LinkInbox::Options()),
        thread_([this] { Serve(); }) {}

  ~LinkListener() override {
    const uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

  std::string address() const override { return address_; }
  LinkInbox& inbox() override { return inbox_; }

 private:
  void Serve() {
    std::vector<pollfd> polled;
    while (true) {
      polled = {{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      for (const Newcomer& newcomer : newcomers_) {
        polled.push_back({newcomer.link.get(), POLLIN, 0});
      }
      const bool housekeeping = !newcomers_.empty() || !inbox_.empty();
      ::poll(polled.data(), polled.size(), housekeeping ? kHousekeepingMs : -1);
      if (polled[0].revents != 0) return;
      // Before accepting, while the list and `polled` still correspond.
      HearNewcomers(polled);
      if (polled[1].revents != 0) Accept();
      inbox_.CloseExpired();
    }
  }

  void HearNewcomers(const std::vector<pollfd>& polled) {
    size_t index = 2;
    for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end(); ++index) {
      const bool heard = polled[index].revents != 0;
      if (heard) Hear(*newcomer);
      if (heard || newcomer->deadline.passed()) {
        newcomer = newcomers_.erase(newcomer);
      } else {
        ++newcomer;
      }
    }
  }

  // Anything but a Hello ends the link: a stranger.
  void Hear(Newcomer& newcomer) {
    ReceivedLinkMessage received = ReceiveLinkMessage(newcomer.link.get());
    if (received.input != LinkInput::kMessage) return;
    if (auto* hello = std::get_if<LinkHello>(&received.message)) {
      inbox_.Add(std::move(newcomer.link), std::move(*hello));
    }
  }

  void Accept() {
    absl::StatusOr<FileDescriptor> link = AcceptLink(socket_.get());
    if (!link.ok()) {
      Log(Severity::kWarning, link.status().message());
      // The connection stays in the queue; poll would return at once, so wait for the stop alone.
      pollfd stop = {stop_.get(), POLLIN, 0};
      ::poll(&stop, 1, kHousekeepingMs);
      return;
    }
    if (!link->valid()) return;
    if (newcomers_.size() >= kMaxNewcomers) newcomers_.pop_front();
    newcomers_.push_back({*std::move(link), Deadline(kHelloTimeout)});
  }

  const FileDescriptor socket_;
  const FileDescriptor stop_;
  const std::string address_;
  LinkInbox inbox_;
  std::list<Newcomer> newcomers_;  // oldest first; of the thread alone
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataListener>> DataListener::Bind() {
  std::string address;
  SHERD_ASSIGN_OR_RETURN(FileDescriptor socket, ListenForLinks(&address));
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return absl::ResourceExhaustedError("no descriptor for the data listener");
  return std::make_unique<LinkListener>(std::move(socket), std::move(stop), std::move(address));
}

}  // namespace sherd
