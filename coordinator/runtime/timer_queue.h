#pragma once

#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"

namespace sherd {

// Things to do at a time. Knows no clock; one thread.
class TimerQueue {
 public:
  void At(absl::Time time, std::function<void()> task) { tasks_.emplace(time, std::move(task)); }

  // Runs what is due, in order of time; a task may add others.
  void RunDue(absl::Time now) {
    while (!tasks_.empty() && tasks_.begin()->first <= now) {
      std::function<void()> task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      task();
    }
  }

  // Moves all that there is to do: for a time in which nothing could be heard.
  void Postpone(absl::Duration pause) {
    std::multimap<absl::Time, std::function<void()>> later;
    for (auto& [time, task] : tasks_)
      later.emplace_hint(later.end(), time + pause, std::move(task));
    tasks_ = std::move(later);
  }

  // kInfiniteFuture when there is nothing to do.
  absl::Time Next() const {
    return tasks_.empty() ? absl::InfiniteFuture() : tasks_.begin()->first;
  }

  void Clear() { tasks_.clear(); }

 private:
  std::multimap<absl::Time, std::function<void()>> tasks_;
};

}  // namespace sherd
