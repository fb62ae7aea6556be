#include "worker/comm/link_inbox.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

LinkInbox::Key KeyOf(const LinkHello& hello) {
  return {hello.job_id, hello.epoch, hello.group, hello.to};
}

}  // namespace

bool LinkInbox::Refuse(int link, const LinkHello& hello) const {
  LinkGoodbye goodbye;
  if (hello.job_id == job_id_ && hello.epoch < epoch_) {
    goodbye = {.code = absl::StatusCode::kPermissionDenied,
               .lost_peer = -1,
               .text = absl::StrCat("rank ", hello.to, " of ", hello.group, " is in epoch ", epoch_,
                                    "; epoch ", hello.epoch, " is over")};
  } else {
    const auto closed =
        std::find_if(closed_.begin(), closed_.end(),
                     [key = KeyOf(hello)](const Closed& closed) { return closed.key == key; });
    if (closed == closed_.end()) return false;
    goodbye = closed->goodbye;
  }
  // Best effort: the link is closed right after.
  (void)SendLinkMessage(link, goodbye);
  return true;
}

void LinkInbox::RefuseParked() {
  for (auto parked = parked_.begin(); parked != parked_.end();) {
    const bool refused = Refuse(parked->arrival.link.get(), parked->arrival.hello);
    parked = refused ? parked_.erase(parked) : std::next(parked);
  }
}

void LinkInbox::Add(FileDescriptor link, LinkHello hello) {
  absl::MutexLock lock(&mutex_);
  if (Refuse(link.get(), hello)) return;
  if (parked_.size() >= options_.max_parked) parked_.pop_front();
  Key key = KeyOf(hello);
  const auto expected = expected_.find(key);
  parked_.push_back(
      {std::move(key), Deadline(options_.max_wait), Arrival{std::move(link), std::move(hello)}});
  if (expected != expected_.end()) {
    const uint64_t one = 1;
    // An eventfd that is full is readable already.
    (void)!::write(expected->second, &one, sizeof(one));
  }
}

void LinkInbox::CloseExpired() {
  absl::MutexLock lock(&mutex_);
  while (!parked_.empty() && parked_.front().deadline.passed()) parked_.pop_front();
}

bool LinkInbox::empty() const {
  absl::MutexLock lock(&mutex_);
  return parked_.empty();
}

void LinkInbox::Expect(const Key& key, int descriptor) {
  absl::MutexLock lock(&mutex_);
  expected_[key] = descriptor;
  const auto& [job_id, epoch, group, rank] = key;
  if (job_id != job_id_ || epoch > epoch_) {
    job_id_ = job_id;
    epoch_ = epoch;
  }
  closed_.remove_if([&key](const Closed& closed) { return closed.key == key; });
  RefuseParked();
}

void LinkInbox::Forget(const Key& key) {
  absl::MutexLock lock(&mutex_);
  expected_.erase(key);
}

void LinkInbox::Close(const Key& key, const LinkGoodbye& goodbye) {
  absl::MutexLock lock(&mutex_);
  expected_.erase(key);
  closed_.push_front({key, goodbye});
  if (closed_.size() > kMaxClosed) closed_.pop_back();
  RefuseParked();
}

std::vector<LinkInbox::Arrival> LinkInbox::Take(const Key& key) {
  absl::MutexLock lock(&mutex_);
  std::vector<Arrival> taken;
  parked_.remove_if([&](Parked& parked) {
    if (parked.key != key) return false;
    taken.push_back(std::move(parked.arrival));
    return true;
  });
  return taken;
}

}  // namespace sherd
