#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace sherd {

// What the stand-in for NVML does, by the name of the call; at first all of them answer. A
// library's of its own, found through kNvmlStandInScript. Thread-safe.
class NvmlScript {
 public:
  // From now on the call answers so; 0 is success.
  void Answer(const std::string& call, int result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    results_[call] = result;
  }
  // From now on the call does not return, until Release.
  void Hold(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = call;
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.clear();
    changed_.notify_all();
  }
  // Until somebody is in the call that is held.
  void WaitUntilHeld() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return inside_; });
  }

  // Whether processes are listed by other numbers than they have here, as in a container.
  void HideProcess(bool hide) { hides_process_ = hide; }
  bool hides_process() const { return hides_process_; }

  // What a call begins with, and returns if it is not 0.
  int Begin(const std::string& call) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (held_ == call) {
      inside_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return held_ != call; });
      inside_ = false;
    }
    const auto result = results_.find(call);
    return result == results_.end() ? 0 : result->second;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> results_;
  std::string held_;
  bool inside_ = false;
  std::atomic<bool> hides_process_{false};
};

using NvmlStandInScript = NvmlScript* (*)();
inline constexpr char kNvmlStandInScript[] = "nvml_stand_in_script";

// The one GPU that it knows is where the software device says that it is.
inline constexpr char kNvmlStandInAddress[] = "0000:5d:00.0";

}  // namespace sherd
