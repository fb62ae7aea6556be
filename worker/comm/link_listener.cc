#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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
  // A socket and where it listens.
  struct Door {
    FileDescriptor socket;
    std::string address;
  };
  LinkListener(Door local, Door network, FileDescriptor stop)
      : local_(std::move(local)),
        network_(std::move(network)),
        stop_(std::move(stop)),
        inbox_(LinkInbox::Options()),
        thread_([this] { Serve(); }) {}

  ~LinkListener() override {
    const uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

  std::string address() const override { return local_.address; }
  std::string network_address() const override { return network_.address; }
  LinkInbox& inbox() override { return inbox_; }
  void ServeHoldings(HoldingHandler handler) override {
    absl::MutexLock lock(&handler_mutex_);
    handler_ = std::move(handler);
  }

 private:
  void Serve() {
    std::vector<pollfd> polled;
    while (true) {
      polled = {{stop_.get(), POLLIN, 0},
                {local_.socket.get(), POLLIN, 0},
                {network_.socket.get(), POLLIN, 0}};
      for (const Newcomer& newcomer : newcomers_) {
        polled.push_back({newcomer.link.get(), POLLIN, 0});
      }
      const bool housekeeping = !newcomers_.empty() || !inbox_.empty();
      ::poll(polled.data(), polled.size(), housekeeping ? kHousekeepingMs : -1);
      if (polled[0].revents != 0) return;
      // Before accepting, while the list and `polled` still correspond.
      HearNewcomers(polled);
      if (polled[1].revents != 0) Accept(local_);
      if (polled[2].revents != 0) Accept(network_);
      inbox_.CloseExpired();
    }
  }

  void HearNewcomers(const std::vector<pollfd>& polled) {
    size_t index = kFirstNewcomer;
    for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end(); ++index) {
      const bool done = polled[index].revents != 0 && Hear(*newcomer);
      if (done || newcomer->deadline.passed()) {
        newcomer = newcomers_.erase(newcomer);
      } else {
        ++newcomer;
      }
    }
  }

  // False while its first message is not whole. Anything but a Hello, or a word about a stored
  // shard, ends the link: a stranger.
  bool Hear(Newcomer& newcomer) {
    ReceivedLinkMessage received = ReceiveLinkMessage(newcomer.link.get());
    if (received.input == LinkInput::kNothing) return false;
    if (received.input != LinkInput::kMessage) return true;
    if (auto* hello = std::get_if<LinkHello>(&received.message)) {
      inbox_.Add(std::move(newcomer.link), std::move(*hello));
    } else if (const auto* holding = std::get_if<LinkHolding>(&received.message)) {
      // Under the lock, so that nobody is called who has been replaced.
      absl::MutexLock lock(&handler_mutex_);
      if (handler_ != nullptr) {
        handler_(std::move(newcomer.link), *holding, std::move(received.attached));
      }
    }
    return true;
  }

  void Accept(const Door& door) {
    absl::StatusOr<FileDescriptor> link = AcceptLink(door.socket.get());
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

  // In the list of what is polled, behind the stop and the doors.
  static constexpr size_t kFirstNewcomer = 3;

  const Door local_;
  const Door network_;
  const FileDescriptor stop_;
  LinkInbox inbox_;
  absl::Mutex handler_mutex_;
  HoldingHandler handler_ ABSL_GUARDED_BY(handler_mutex_);
  std::list<Newcomer> newcomers_;  // oldest first; of the thread alone
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataListener>> DataListener::Bind(const std::string& host) {
  LinkListener::Door local;
  SHERD_ASSIGN_OR_RETURN(local.socket, ListenForLinks(&local.address));
  LinkListener::Door network;
  SHERD_ASSIGN_OR_RETURN(network.socket, ListenForTcpLinks(host, &network.address));
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return absl::ResourceExhaustedError("no descriptor for the data listener");
  return std::make_unique<LinkListener>(std::move(local), std::move(network), std::move(stop));
}

}  // namespace sherd
