#include "worker/agent/inspector.h"

#include <string>
#include <utility>

#include "common/log.h"

namespace sherd {
namespace {

v1::DataInspection Result(uint64_t request_id, absl::StatusOr<v1::DataInspection> found) {
  v1::DataInspection inspection;
  if (found.ok()) {
    inspection = *std::move(found);
  } else {
    inspection.set_error(std::string(found.status().message()));
  }
  inspection.set_request_id(request_id);
  return inspection;
}

}  // namespace

Inspector::Inspector(Look look, Answer answer)
    : look_(std::move(look)), answer_(std::move(answer)), thread_([this] { Run(); }) {}

Inspector::~Inspector() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Inspector::Inspect(v1::InspectData request) {
  absl::MutexLock lock(&mutex_);
  requests_.push_back(std::move(request));
  if (requests_.size() <= kWaiting) return;
  requests_.pop_front();
  Log(Severity::kWarning, "too many jobs' files to look at; the oldest request is dropped");
}

void Inspector::Run() {
  while (true) {
    v1::InspectData request;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !requests_.empty();
      };
      mutex_.Await(absl::Condition(&due));
      if (stopping_) return;
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    answer_(Result(request.request_id(), look_(request)));
  }
}

}  // namespace sherd
