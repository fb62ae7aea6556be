// A coordinator and what clients ask of its jobs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tests/coordinator/controller_fixture.h"

namespace sherd {

class JobDeskTest : public ControllerTest {
 protected:
  using Answer = std::optional<absl::StatusOr<v1::SubmitResponse>>;

  std::shared_ptr<Answer> SubmitLater(const std::string& request_id) {
    auto answer = std::make_shared<Answer>();
    controller_->jobs().Submit(
        RequestOf(request_id, 1),
        [answer](absl::StatusOr<v1::SubmitResponse> response) { *answer = std::move(response); });
    return answer;
  }

  void Inspected(const std::shared_ptr<RecordingLink>& link, uint64_t number,
                 const std::string& error) {
    v1::SessionRequest request;
    request.mutable_inspection()->set_request_id(number);
    request.mutable_inspection()->set_error(error);
    controller_->fleet().Receive(link.get(), request);
    EndTurn();
  }

  absl::StatusOr<v1::CancelResponse> Cancel(const JobId& id) {
    absl::StatusOr<v1::CancelResponse> answer = absl::UnknownError("no answer");
    controller_->jobs().Cancel(
        id, [&](absl::StatusOr<v1::CancelResponse> response) { answer = std::move(response); });
    EndTurn();
    return answer;
  }

  // What a reader that waits gets, once it gets something.
  std::shared_ptr<std::optional<FeedChunk>> Read(const JobId& id, int64_t after) {
    auto chunk = std::make_shared<std::optional<FeedChunk>>();
    controller_->jobs().ReadFeed(id, after, 3, absl::Milliseconds(250),
                                 [chunk](absl::StatusOr<FeedChunk> answer) {
                                   ASSERT_TRUE(answer.ok()) << answer.status();
                                   *chunk = *std::move(answer);
                                 });
    EndTurn();
    return chunk;
  }
};

}  // namespace sherd
