// The gRPC edge over a real channel, on a port that the system chooses.

#include "coordinator/rpc/server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "sherd/v1/job_service.grpc.pb.h"
#include "sherd/v1/worker.grpc.pb.h"
#include "tests/coordinator/server_fixture.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(ServerTest, SubmitIsIdempotent) {  // F53
  v1::SubmitResponse first;
  const grpc::Status status = Submit("r", ValidSpec(), &first);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(first.created());
  EXPECT_EQ(first.job().id(), "tiny-1");
  v1::SubmitResponse second;
  ASSERT_TRUE(Submit("r", ValidSpec(), &second).ok());
  EXPECT_FALSE(second.created());
  EXPECT_EQ(second.job().id(), "tiny-1");
}

TEST_F(ServerTest, WhatASpecificationLeavesOutIsFilledIn) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_checkpoint()->clear_dir();
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit("r", spec, &response).ok());
  const v1::JobSpec& complete = response.job().spec();
  EXPECT_EQ(complete.elastic().replicas(), 1);
  EXPECT_EQ(complete.checkpoint().keep(), 3);
  EXPECT_EQ(complete.checkpoint().resume(), "none");
  // The job's name would be another job's as well.
  EXPECT_EQ(complete.checkpoint().dir(), "tiny-1");
}

TEST_F(ServerTest, EverythingThatIsWrongIsToldAtOnceAndDecodes) {  // F55
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->set_heads(3);
  spec.mutable_train()->set_global_batch(5);
  v1::SubmitResponse response;
  const grpc::Status status = Submit("", spec, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(details.message(), status.error_message());
  ASSERT_THAT(details.details(), SizeIs(1));
  v1::InvalidFields invalid;
  ASSERT_TRUE(details.details(0).UnpackTo(&invalid));
  std::vector<std::string> names;
  for (const v1::InvalidField& field : invalid.fields()) {
    names.push_back(field.field());
    EXPECT_THAT(status.error_message(), HasSubstr(field.field()));
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"model.heads", "train.global_batch", "request_id"}));
}

TEST_F(ServerTest, ASpecificationThatNoMessageCouldCarryIsRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_data()->add_train(std::string(1 << 20, 'x'));
  v1::SubmitResponse response;
  const grpc::Status status = Submit("r", spec, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("at most 1048576"));
}

TEST_F(ServerTest, AJobThatIsNotThereIsNotFound) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetJobRequest request;
  request.set_job_id("none-1");
  v1::GetJobResponse response;
  const grpc::Status status = jobs_->GetJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("none-1"));
}

TEST_F(ServerTest, AWorkerTrainsAJobToItsEnd) {
  TestWorker worker(channel_, "w0");
  ASSERT_TRUE(worker.Await(v1::SessionResponse::kWelcome).has_welcome());
  v1::SubmitResponse response;
  grpc::Status submitted;
  std::thread client([&] { submitted = Submit("r", ValidSpec(), &response); });
  worker.AnswerInspection("");
  client.join();
  ASSERT_TRUE(submitted.ok()) << submitted.error_message();
  const v1::Assignment assignment = worker.Await(v1::SessionResponse::kAssign).assign();
  EXPECT_EQ(assignment.world(), 1);
  v1::RankReport report;
  report.mutable_ready();
  worker.Report(report, assignment);
  for (int64_t step = 1; step <= 3; ++step) {
    report.mutable_step()->set_step(step);
    worker.Report(report, assignment);
  }
  report.mutable_finished()->set_weights_path("out/tiny");
  worker.Report(report, assignment);

  // Submitted, forming, running, epoch, three steps, succeeded, done: resumed without gap or
  // repeat.
  const std::vector<int64_t> head = Watch(response.job().id(), 0, 3);
  EXPECT_THAT(head, ElementsAre(1, 2, 3));
  EXPECT_THAT(Watch(response.job().id(), 3, 0), ElementsAre(4, 5, 6, 7, 8, 9, 10));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetJobRequest request;
  request.set_job_id(response.job().id());
  v1::GetJobResponse job;
  ASSERT_TRUE(jobs_->GetJob(&context, request, &job).ok());
  EXPECT_EQ(job.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.job().step(), 3);
  EXPECT_EQ(job.job().weights_path(), "out/tiny");
}

TEST_F(ServerTest, WhatAWorkerFindsWrongWithTheFilesIsAnInvalidArgument) {
  TestWorker worker(channel_, "w0");
  ASSERT_TRUE(worker.Await(v1::SessionResponse::kWelcome).has_welcome());
  v1::SubmitResponse response;
  grpc::Status submitted;
  std::thread client([&] { submitted = Submit("r", ValidSpec(), &response); });
  worker.AnswerInspection("text is shorter than one sequence; give 17 bytes or more");
  client.join();
  EXPECT_EQ(submitted.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(submitted.error_message(), HasSubstr("shorter than one sequence"));
}

TEST_F(ServerTest, WatchersResumeOverARestart) {  // F31, F52
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit("r", ValidSpec(), &response).ok());
  EXPECT_THAT(Watch("tiny-1", 0, 2), ElementsAre(1, 2));
  coordinator_.reset();
  Start();
  grpc::ClientContext context;
  SetDeadline(context);
  v1::CancelRequest cancel;
  cancel.set_job_id("tiny-1");
  v1::CancelResponse cancelled;
  ASSERT_TRUE(jobs_->Cancel(&context, cancel, &cancelled).ok());
  EXPECT_THAT(Watch("tiny-1", 2, 0), ElementsAre(3, 4));
}

TEST_F(ServerTest, ADrainedWorkerIsToldToEnd) {
  TestWorker worker(channel_, "w0");
  ASSERT_TRUE(worker.Await(v1::SessionResponse::kWelcome).has_welcome());
  const auto drain = [&](const std::string& id, v1::DrainResponse* response) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::DrainRequest request;
    request.set_worker_id(id);
    return jobs_->Drain(&context, request, response);
  };
  v1::DrainResponse response;
  ASSERT_TRUE(drain("w0", &response).ok());
  EXPECT_EQ(response.worker().status(), "draining");
  EXPECT_EQ(worker.Await(v1::SessionResponse::kShutdown).shutdown().reason(), "a user drains it");
  EXPECT_EQ(drain("w1", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, ASessionStartsWithHello) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = stub->Session(&context);
  v1::SessionRequest request;
  request.mutable_heartbeat();
  stream->Write(request);
  v1::SessionResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServerTest, AReplacedProcessIsToldSo) {  // F24
  {
    TestWorker old(channel_, "w0", 1);
    ASSERT_TRUE(old.Await(v1::SessionResponse::kWelcome).has_welcome());
  }
  TestWorker newer(channel_, "w0", 2);
  ASSERT_TRUE(newer.Await(v1::SessionResponse::kWelcome).has_welcome());
  TestWorker again(channel_, "w0", 1);
  EXPECT_EQ(again.End().error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(ServerTest, StreamsEndAsUnavailableWhenTheCoordinatorStops) {
  TestWorker worker(channel_, "w0");
  ASSERT_TRUE(worker.Await(v1::SessionResponse::kWelcome).has_welcome());
  coordinator_.reset();
  EXPECT_EQ(worker.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A server that does not allow such pings closes the connection at the fourth with too_many_pings;
// clients send at most one a second (F37).
TEST_F(ServerTest, ClientsThatPingWithoutCallsAreNotThrownOut) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 50);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      coordinator_->address(), grpc::InsecureChannelCredentials(), arguments);
  ASSERT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + kCallDeadline));
  EXPECT_FALSE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + std::chrono::milliseconds(4500)));
}

TEST_F(ServerTest, ReflectionListsTheServices) {
  std::string response;
  // ServerReflectionRequest{list_services: ""}: field 7, an empty string.
  const grpc::Status status = Call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                   std::string("\x3a\x00", 2), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response, HasSubstr("sherd.v1.JobService"));
  EXPECT_THAT(response, HasSubstr("sherd.v1.WorkerService"));
}

TEST_F(ServerTest, HealthAnswersServing) {
  std::string response;
  // grpc.health.v1.HealthCheckRequest{service: "sherd.v1.JobService"}: field 1, a string.
  const std::string service = "sherd.v1.JobService";
  const std::string request = absl::StrCat("\x0a", std::string(1, service.size()), service);
  const grpc::Status status = Call("/grpc.health.v1.Health/Check", request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  // HealthCheckResponse{status: SERVING}: field 1, the varint 1.
  EXPECT_EQ(response, std::string("\x08\x01"));
}

TEST_F(ServerTest, CallsAreCounted) {
  v1::SubmitResponse response;
  ASSERT_TRUE(Submit("r", ValidSpec(), &response).ok());
  const prometheus::TextSerializer serializer;
  const std::string text = serializer.Serialize(coordinator_->registry().Collect());
  EXPECT_THAT(text, HasSubstr("sherd_rpcs_total{code=\"OK\",method=\"Submit\"} 1"));
}

TEST_F(ServerTest, ATakenPortIsOneSentence) {  // F28
  prometheus::Registry registry;
  const absl::Status status =
      Server::Start({.address = coordinator_->address()}, coordinator_->loop(), registry).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(coordinator_->address()));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace sherd
