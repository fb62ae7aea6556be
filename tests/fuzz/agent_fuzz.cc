// What a coordinator tells a worker, one message of the wire after the other, between what becomes
// of the worker's trainer: a byte that says which, two of the length, the message. Whatever comes,
// one trainer runs at a time, no epoch is started twice or after its abort, every abort is answered
// by a release, and nothing comes after the end.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "sherd/v1/worker.pb.h"
#include "tests/fuzz/fuzz.h"
#include "worker/agent/agent_state.h"

namespace {

class Worker {
 public:
  void Take(uint8_t what, absl::string_view bytes) {
    switch (what % 4) {
      case 0:
        Hear(bytes);
        break;
      case 1:
        if (trains_) EndTrainer(what / 4, bytes);
        break;
      case 2:
        Do(sherd::StopRequested{what / 4 % 2, std::string(bytes), what / 8 % 2});
        break;
      case 3:
        Do(sherd::AbortOverdue{});
        break;
    }
  }

 private:
  using Epochs = std::pair<std::string, int64_t>;

  void Hear(absl::string_view bytes) {
    sherd::v1::SessionResponse response;
    if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    switch (response.message_case()) {
      case sherd::v1::SessionResponse::kAssign:
        Do(sherd::AssignReceived{response.assign()});
        Closed(response.assign().job_id(), response.assign().epoch());
        break;
      case sherd::v1::SessionResponse::kAbort:
        Abort(response.abort());
        break;
      case sherd::v1::SessionResponse::kPause:
        Do(sherd::PauseReceived{response.pause()});
        break;
      case sherd::v1::SessionResponse::kLocate:
        Do(sherd::LocateReceived{response.locate()});
        break;
      default:
        break;
    }
  }

  void Abort(const sherd::v1::Abort& abort) {
    if (!ended_) owed_.insert({abort.job_id(), abort.epoch()});
    Do(sherd::AbortReceived{abort});
    Closed(abort.job_id(), abort.epoch());
    // Only a trainer that runs may be waited for.
    FUZZ_CHECK(trains_ || owed_.empty() || ended_);
  }

  void EndTrainer(uint8_t how, absl::string_view bytes) {
    sherd::TrainerEnded ended;
    if (how % 2 == 1) ended.status = absl::Status(absl::StatusCode(1 + how / 2 % 16), bytes);
    ended.paused = how / 32 % 2 == 1;
    trains_ = false;
    Do(ended);
    FUZZ_CHECK(owed_.empty() || ended_);
  }

  // Nothing of this epoch, or of an older one, is started from now on. The worker forgets jobs that
  // it has not heard of for long.
  void Closed(const std::string& job, int64_t epoch) {
    if (closed_.size() == sherd::AgentState::kRememberedJobs && !closed_.contains(job)) {
      forgets_ = true;
    }
    const auto [known, added] = closed_.emplace(job, epoch);
    if (!added) known->second = std::max(known->second, epoch);
  }

  void Do(const sherd::AgentEvent& event) {
    for (const sherd::AgentAction& action : state_.Handle(event)) {
      FUZZ_CHECK(!ended_);
      if (const auto* start = std::get_if<sherd::StartTrainer>(&action)) {
        FUZZ_CHECK(!trains_);
        trains_ = true;
        const auto known = closed_.find(start->assignment.job_id());
        FUZZ_CHECK(forgets_ || known == closed_.end() || known->second < start->assignment.epoch());
      } else if (const auto* report = std::get_if<sherd::Report>(&action)) {
        if (report->report.has_released()) {
          owed_.erase({report->report.job_id(), report->report.epoch()});
        }
      } else if (std::holds_alternative<sherd::ExitProcess>(action)) {
        ended_ = true;
      } else {
        // The rest is about a trainer.
        FUZZ_CHECK(trains_);
      }
    }
    FUZZ_CHECK(ended_ || state_.rank().has_value() == trains_);
  }

  sherd::AgentState state_;
  bool trains_ = false;
  bool ended_ = false;
  bool forgets_ = false;
  std::map<std::string, int64_t> closed_;
  std::set<Epochs> owed_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Worker worker;
  while (size >= 3) {
    const size_t length = std::min<size_t>(data[1] | data[2] << 8, size - 3);
    worker.Take(data[0], sherd::AsText(data + 3, length));
    data += 3 + length;
    size -= 3 + length;
  }
  return 0;
}
