// Jobs whose model is in a folder: a worker that reads it tells the shape.
#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "plan/model_folder.h"
#include "tests/coordinator/controller_fixture.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ModelFromTest : public ControllerTest {
 protected:
  using Answer = std::optional<absl::StatusOr<v1::SubmitResponse>>;

  static v1::ModelSpec Folder() {
    v1::JobSpec spec;
    spec.mutable_model()->set_preset("llama-15m");
    v1::ModelSpec model = NormalizeJobSpec(spec).model();
    model.clear_preset();
    return model;
  }

  // As the gRPC edge hands it on.
  static v1::SubmitRequest Request() {
    v1::SubmitRequest request = RequestOf("r", 1);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.mutable_train()->set_seq_len(0);
    spec.mutable_data()->add_train("corpus.txt");
    spec.clear_model();
    spec.mutable_model()->set_from("models/tiny");
    spec = NormalizeJobSpec(spec);
    spec.clear_checkpoint();
    EXPECT_TRUE(AwaitsShape(spec.model()));
    return request;
  }

  std::shared_ptr<Answer> Submit(const v1::SubmitRequest& request) {
    auto answer = std::make_shared<Answer>();
    controller_->jobs().Submit(request, [answer](absl::StatusOr<v1::SubmitResponse> response) {
      *answer = std::move(response);
    });
    EndTurn();
    return answer;
  }

  void Inspected(const std::shared_ptr<RecordingLink>& link, const v1::ModelSpec* model) {
    v1::SessionRequest request;
    request.mutable_inspection()->set_request_id(link->sent.back().inspect_data().request_id());
    if (model != nullptr) *request.mutable_inspection()->mutable_model() = *model;
    controller_->fleet().Receive(link.get(), request);
    EndTurn();
  }

  static std::string MessageOf(const std::shared_ptr<Answer>& answer) {
    return answer->has_value() ? std::string((*answer)->status().message()) : "no answer";
  }
};

TEST_F(ModelFromTest, TheJobGetsTheShapeThatTheWorkerRead) {
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const std::shared_ptr<Answer> answer = Submit(Request());
  EXPECT_EQ(link->sent.back().inspect_data().model_from(), "models/tiny");
  EXPECT_EQ(link->sent.back().inspect_data().seq_len(), 0);
  const v1::ModelSpec folder = Folder();
  Inspected(link, &folder);
  ASSERT_TRUE(answer->has_value());
  ASSERT_TRUE((*answer)->ok()) << (*answer)->status();
  const v1::JobSpec& spec = (*answer)->value().job().spec();
  EXPECT_EQ(spec.model().layers(), 5);
  EXPECT_EQ(spec.model().kv_heads(), 4);
  EXPECT_EQ(spec.model().from(), "models/tiny");
  EXPECT_EQ(spec.train().seq_len(), 256);
  EXPECT_EQ(spec.checkpoint().dir(), (*answer)->value().job().id());
  Restart();
  EXPECT_EQ(controller_->state().jobs.begin()->second.spec.model().layers(), 5);
}

// F55: both values, with the field, so that the user's line is found.
TEST_F(ModelFromTest, WhatDoesNotAgreeOrDoesNotFitIsRefused) {
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const v1::ModelSpec folder = Folder();
  v1::SubmitRequest request = Request();
  request.mutable_spec()->mutable_model()->set_layers(6);
  const std::shared_ptr<Answer> differs = Submit(request);
  Inspected(link, &folder);
  EXPECT_EQ((*differs)->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(differs), AllOf(HasSubstr("model.layers: 6 "), HasSubstr("which is 5")));
  request = Request();
  request.mutable_spec()->mutable_parallel()->set_tensor(3);
  request.mutable_spec()->mutable_train()->set_seq_len(257);
  const std::shared_ptr<Answer> misfit = Submit(request);
  Inspected(link, &folder);
  EXPECT_THAT(MessageOf(misfit),
              AllOf(HasSubstr("tensor 3 does not fit 8 heads"), HasSubstr("train.seq_len: 257")));
  EXPECT_THAT(controller_->state().jobs, SizeIs(0));
}

TEST_F(ModelFromTest, WithoutAWorkerThatKnowsFoldersNothingIsQueued) {
  EXPECT_THAT(MessageOf(Submit(Request())), HasSubstr("none is connected; start workers"));
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  const std::shared_ptr<Answer> old = Submit(Request());
  Inspected(link, nullptr);
  EXPECT_THAT(MessageOf(old), HasSubstr("does not know model.from"));
  const std::shared_ptr<Answer> wrong = Submit(Request());
  v1::ModelSpec folder = Folder();
  folder.set_heads(-1);
  Inspected(link, &folder);
  EXPECT_THAT(MessageOf(wrong), HasSubstr("model.heads"));
  const std::shared_ptr<Answer> gone = Submit(Request());
  Disconnect(link);
  EXPECT_THAT(MessageOf(gone), HasSubstr("none is connected"));
  EXPECT_THAT(controller_->state().jobs, SizeIs(0));
}

}  // namespace
}  // namespace sherd
