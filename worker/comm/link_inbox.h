#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/comm/deadline.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_message.h"

namespace sherd {

// Links on which a Hello has come and that wait to be claimed by the formation they are for; its
// member may come long before the local one starts. Bounded in number and time: a link that has to
// go is closed without a word, and its owner, if honest, connects again. Secrets are for the
// formation to check. Thread-safe.
class LinkInbox {
 public:
  struct Options {
    size_t max_parked = 256;
    absl::Duration max_wait = absl::Minutes(2);
  };
  // Whom a link is for: job, epoch, group, and the rank in it.
  using Key = std::tuple<std::string, int64_t, std::string, int32_t>;

  struct Arrival {
    FileDescriptor link;
    LinkHello hello;
  };

  explicit LinkInbox(Options options) : options_(options) {}

  // Parks the link, or refuses it with a Goodbye: kPermissionDenied when a later epoch of its job
  // has been formed here, that of Close when its formation has failed.
  void Add(FileDescriptor link, LinkHello hello) ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseExpired() ABSL_LOCKS_EXCLUDED(mutex_);
  bool empty() const ABSL_LOCKS_EXCLUDED(mutex_);

  // A formation begins: makes `descriptor` (an eventfd) readable whenever a link for `key` comes,
  // and refuses links of older epochs of its job from now on.
  void Expect(const Key& key, int descriptor) ABSL_LOCKS_EXCLUDED(mutex_);
  // It has ended well: `descriptor` is used no more.
  void Forget(const Key& key) ABSL_LOCKS_EXCLUDED(mutex_);
  // It has failed: links that are there or come late are refused with `goodbye`, so that no member
  // waits for this one in vain.
  void Close(const Key& key, const LinkGoodbye& goodbye) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Arrival> Take(const Key& key) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Parked {
    Key key;
    Deadline deadline;
    Arrival arrival;
  };

  struct Closed {
    Key key;
    LinkGoodbye goodbye;
  };
  // More than a worker has groups.
  static constexpr size_t kMaxClosed = 32;

  // Refuses the link of a formation that is over; false when it may be parked.
  bool Refuse(int link, const LinkHello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefuseParked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::list<Parked> parked_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<Key, int> expected_ ABSL_GUARDED_BY(mutex_);
  std::list<Closed> closed_ ABSL_GUARDED_BY(mutex_);  // newest first
  // The job formed last and its newest epoch; a worker serves one job at a time.
  std::string job_id_ ABSL_GUARDED_BY(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sherd
