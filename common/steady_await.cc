#include "common/steady_await.h"

#include <algorithm>
#include <utility>

namespace sherd {
namespace {

// So that no end of a wait overflows.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);
constexpr std::chrono::milliseconds kRetry(1);

}  // namespace

SteadyAwait::SteadyAwait() : thread_([this] { Run(); }) {}

SteadyAwait::~SteadyAwait() {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool SteadyAwait::Await(absl::Mutex& mutex, const absl::Condition& condition,
                        absl::Duration timeout) {
  if (condition.Eval()) return true;
  if (timeout <= absl::ZeroDuration()) return false;
  const auto waiter = std::make_shared<Waiter>(
      Waiter{&mutex, Clock::now() + absl::ToChronoNanoseconds(std::min(timeout, kLongest))});
  Waiters::iterator place;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    const std::shared_ptr<Waiter> next = Next();
    place = waiters_.insert(waiters_.end(), waiter);
    if (next == nullptr || waiter->end < next->end) changed_.notify_one();
  }
  const auto over = [&] { return waiter->expired || condition.Eval(); };
  mutex.Await(absl::Condition(&over));
  {
    const std::lock_guard<std::mutex> lock(lock_);
    waiters_.erase(place);
  }
  return condition.Eval();
}

std::shared_ptr<SteadyAwait::Waiter> SteadyAwait::Next() const {
  const auto next =
      std::min_element(waiters_.begin(), waiters_.end(),
                       [](const std::shared_ptr<Waiter>& a, const std::shared_ptr<Waiter>& b) {
                         return a->end < b->end;
                       });
  return next == waiters_.end() ? nullptr : *next;
}

void SteadyAwait::Run() {
  std::unique_lock<std::mutex> lock(lock_);
  while (!stopping_) {
    const std::shared_ptr<Waiter> next = Next();
    if (next == nullptr) {
      changed_.wait(lock);
      continue;
    }
    if (Clock::now() < next->end) {
      changed_.wait_until(lock, next->end);
      continue;
    }
    // Not blocking: who holds the mutex may be waiting for this thread's end.
    if (!next->mutex->TryLock()) {
      changed_.wait_for(lock, kRetry);
      continue;
    }
    next->expired = true;
    next->end = Clock::time_point::max();
    next->mutex->Unlock();
  }
}

bool AwaitSteadily(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) {
  if (condition.Eval()) return true;
  SteadyAwait await;
  return await.Await(mutex, condition, timeout);
}

}  // namespace sherd
