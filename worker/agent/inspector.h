#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// Looks at jobs' files one request after another on a thread of its own, so that neither training
// nor the session waits for a disk. Thread-safe.
class Inspector {
 public:
  // What was found, or one sentence that says what is wrong.
  using Look = std::function<absl::StatusOr<v1::DataInspection>(const v1::InspectData&)>;
  using Answer = std::function<void(v1::DataInspection)>;

  // `answer` is called on the inspector's thread.
  Inspector(Look look, Answer answer);
  // Ends after the request that is under way; the waiting ones are not answered.
  ~Inspector();

  // Never blocks. Beyond kWaiting requests the oldest is dropped: nothing is wrong with its files,
  // and the coordinator, whose deadline for it is the nearest, says that it should be tried again.
  void Inspect(v1::InspectData request);

  static constexpr size_t kWaiting = 64;

 private:
  void Run();

  const Look look_;
  const Answer answer_;
  absl::Mutex mutex_;
  std::deque<v1::InspectData> requests_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sherd
