#include "worker/comm/failure_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/comm/formation.h"
#include "worker/comm/link_socket.h"

namespace sherd {

FailureRelay::FailureRelay(int rank, std::vector<int> links, OperationQueue& queue,
                           Callbacks callbacks)
    : rank_(rank),
      links_(std::move(links)),
      queue_(queue),
      callbacks_(std::move(callbacks)),
      left_(links_.size()) {
  if (links_.size() == 1) return;
  monitor_ = std::make_unique<PeerMonitor>(
      links_,
      PeerMonitor::Callbacks{
          .on_goodbye = [this](int peer, const LinkGoodbye& goodbye) { OnGoodbye(peer, goodbye); },
          .on_lost = [this](int peer) { Lost(peer); }});
  if (!monitor_->listens()) {
    Fail(absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, " has no descriptor to hear the other ranks by")));
  }
}

void FailureRelay::Leave() {
  if (!queue_.idle()) Abort("the communicator was destroyed while operations were under way");
  // Ignored by the others after a failure: one Goodbye ends a link.
  SendGoodbye(LinkGoodbye{});
  monitor_.reset();
}

void FailureRelay::Abort(absl::string_view reason) {
  End(absl::AbortedError(reason), absl::StrCat("rank ", rank_, " aborted: ", reason), -1, -1);
}

void FailureRelay::Fail(const absl::Status& error) {
  End(error, std::string(error.message()), -1, -1);
}

void FailureRelay::Lost(int peer) {
  const std::string text = absl::StrCat("rank ", peer, ": its process went away");
  End(absl::UnavailableError(text), text, peer, peer);
}

void FailureRelay::End(const absl::Status& error, const std::string& goodbye, int lost_peer,
                       int by) {
  {
    absl::MutexLock lock(&mutex_);
    if (queue_.failed()) return;
    // First: once the queue has failed, Wait returns and the caller may write to its buffers.
    if (callbacks_.before_end != nullptr) callbacks_.before_end();
    ended_by_.store(by);
    queue_.Fail(error);
  }
  SendGoodbye({.code = error.code(), .lost_peer = lost_peer, .text = goodbye});
  callbacks_.wake();
}

void FailureRelay::OnGoodbye(int peer, const LinkGoodbye& goodbye) {
  if (goodbye.code == absl::StatusCode::kOk) {
    left_[static_cast<size_t>(peer)].store(true);
    callbacks_.wake();
    return;
  }
  const bool names_member =
      goodbye.lost_peer >= 0 && goodbye.lost_peer < static_cast<int>(links_.size());
  const int lost = names_member ? goodbye.lost_peer : -1;
  End(StatusOf(goodbye, peer), goodbye.text, lost, lost >= 0 ? lost : peer);
}

void FailureRelay::SendGoodbye(const LinkGoodbye& goodbye) {
  for (const int link : links_) {
    // A link that is gone needs none.
    if (link >= 0) (void)SendLinkMessage(link, goodbye);
  }
}

}  // namespace sherd
