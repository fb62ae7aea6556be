#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"

namespace sherd::simulation {

// What is to happen, in order of time, among equals in the order in which it was asked for; and the
// clock, which moves from one to the next.
class EventQueue final : public Clock {
 public:
  absl::Time Now() const override { return now_; }

  void At(absl::Time time, std::function<void()> task) {
    tasks_.push_back({std::max(time, now_), ++added_, std::move(task)});
    std::push_heap(tasks_.begin(), tasks_.end(), IsLater);
  }
  void After(absl::Duration delay, std::function<void()> task) {
    At(now_ + delay, std::move(task));
  }

  // False when nothing is left.
  bool RunNext() {
    if (tasks_.empty()) return false;
    std::pop_heap(tasks_.begin(), tasks_.end(), IsLater);
    Task next = std::move(tasks_.back());
    tasks_.pop_back();
    now_ = next.time;
    next.run();
    return true;
  }
  int64_t added() const { return added_; }

 private:
  struct Task {
    absl::Time time;
    int64_t number;
    std::function<void()> run;
  };
  static bool IsLater(const Task& a, const Task& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  int64_t added_ = 0;
  std::vector<Task> tasks_;
};

}  // namespace sherd::simulation
