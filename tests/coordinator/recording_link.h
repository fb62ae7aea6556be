#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/runtime/worker_link.h"

namespace sherd {

// Keeps what the coordinator sends. One thread.
class RecordingLink final : public WorkerLink {
 public:
  void Send(v1::SessionResponse message) override { sent.push_back(std::move(message)); }
  void Close(const absl::Status& status) override {
    if (!closed) closed = status;
  }

  // The kinds of what was sent, for comparison: "welcome", "assign", "abort", …; "ack N" for a bare
  // acknowledgement.
  std::vector<std::string> Kinds() const {
    std::vector<std::string> kinds;
    for (const v1::SessionResponse& message : sent) {
      switch (message.message_case()) {
        case v1::SessionResponse::kWelcome:
          kinds.push_back("welcome");
          break;
        case v1::SessionResponse::kAssign:
          kinds.push_back("assign");
          break;
        case v1::SessionResponse::kAbort:
          kinds.push_back("abort");
          break;
        case v1::SessionResponse::kInspectData:
          kinds.push_back("inspect");
          break;
        case v1::SessionResponse::kShutdown:
          kinds.push_back("shutdown");
          break;
        case v1::SessionResponse::kReportHoldings:
          kinds.push_back("report holdings");
          break;
        case v1::SessionResponse::kRetain:
          kinds.push_back("retain");
          break;
        case v1::SessionResponse::kPause:
          kinds.push_back("pause");
          break;
        case v1::SessionResponse::kHold:
          kinds.push_back("hold");
          break;
        case v1::SessionResponse::kLocate:
          kinds.push_back("locate");
          break;
        default:
          kinds.push_back("ack " + std::to_string(message.acknowledged()));
      }
    }
    return kinds;
  }

  std::vector<v1::SessionResponse> sent;
  std::optional<absl::Status> closed;
};

}  // namespace sherd
