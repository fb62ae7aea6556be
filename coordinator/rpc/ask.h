#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady_await.h"
#include "coordinator/runtime/event_loop.h"
#include "coordinator/runtime/reply.h"

namespace sherd {

// Where the answer of the event loop arrives. Thread-safe.
template <typename T>
class Mailbox {
 public:
  void Put(absl::StatusOr<T> result) {
    absl::MutexLock lock(&mutex_);
    if (!result_) result_ = std::move(result);
  }

  absl::StatusOr<T> Take(absl::Duration patience) {
    absl::MutexLock lock(&mutex_);
    const auto arrived = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return result_.has_value(); };
    if (!AwaitSteadily(mutex_, absl::Condition(&arrived), patience)) {
      return absl::DeadlineExceededError("the coordinator is too busy to answer; try again");
    }
    return *std::move(result_);
  }

 private:
  absl::Mutex mutex_;
  std::optional<absl::StatusOr<T>> result_ ABSL_GUARDED_BY(mutex_);
};

// Puts an error when it is dropped unused, as happens to questions when the loop stops.
template <typename T>
class Sender {
 public:
  explicit Sender(std::shared_ptr<Mailbox<T>> mailbox) : mailbox_(std::move(mailbox)) {}
  Sender(const Sender&) = delete;
  ~Sender() { mailbox_->Put(absl::UnavailableError("the coordinator stops; try again later")); }
  void Send(absl::StatusOr<T> result) { mailbox_->Put(std::move(result)); }

 private:
  const std::shared_ptr<Mailbox<T>> mailbox_;
};

// Has `question` run on the event loop and waits for its reply. kDeadlineExceeded after `patience`,
// kUnavailable when the loop has stopped. Any thread but the loop's.
template <typename T>
absl::StatusOr<T> Ask(EventLoop& loop, absl::Duration patience,
                      std::function<void(Controller&, Reply<T>)> question) {
  auto mailbox = std::make_shared<Mailbox<T>>();
  {
    auto sender = std::make_shared<Sender<T>>(mailbox);
    loop.Post(
        [question = std::move(question), sender = std::move(sender)](Controller& controller) {
          question(controller,
                   [sender](absl::StatusOr<T> result) { sender->Send(std::move(result)); });
        },
        patience);
  }
  return mailbox->Take(patience);
}

}  // namespace sherd
