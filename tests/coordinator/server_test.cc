// The gRPC edge over a real channel, on a port that the system chooses.

#include "coordinator/rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/runtime/controller.h"
#include "coordinator/runtime/event_loop.h"
#include "coordinator/runtime/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "sherd/v1/job_service.grpc.pb.h"
#include "sherd/v1/worker.grpc.pb.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::chrono::seconds kDeadline(20);

// A coordinator in this process.
class InProcessCoordinator {
 public:
  explicit InProcessCoordinator(EventLog& log, const std::string& address = "127.0.0.1:0")
      : metrics_(*registry_),
        controller_(
            {}, clock_, log, [](int bytes) { return std::string(bytes, 's'); }, metrics_),
        loop_(controller_, clock_, metrics_) {
    EXPECT_TRUE(controller_.Recover().ok());
    absl::StatusOr<std::unique_ptr<Server>> server =
        Server::Start({.address = address}, loop_, *registry_);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
    thread_ = std::thread([this] { status_ = loop_.Run(); });
  }
  ~InProcessCoordinator() {
    loop_.Stop();
    thread_.join();
    server_.reset();
    EXPECT_TRUE(status_.ok()) << status_;
  }

  std::string address() const { return server_->address(); }
  EventLoop& loop() { return loop_; }
  prometheus::Registry& registry() { return *registry_; }

 private:
  const SteadyClock clock_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  CoordinatorMetrics metrics_;
  Controller controller_;
  EventLoop loop_;
  std::unique_ptr<Server> server_;
  absl::Status status_;
  std::thread thread_;
};

// A worker's stream with deadlines on everything.
class TestWorker {
 public:
  TestWorker(const std::shared_ptr<grpc::Channel>& channel, const std::string& id,
             uint64_t incarnation = 1)
      : stub_(v1::WorkerService::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + kDeadline);
    stream_ = stub_->Session(&context_);
    v1::SessionRequest request;
    v1::Hello* hello = request.mutable_hello();
    hello->set_worker_id(id);
    hello->set_incarnation(incarnation);
    hello->set_device("cpu:0");
    hello->set_host("host");
    hello->set_shared_memory_domain("host/0");
    hello->set_data_address("unix-abstract:" + id);
    stream_->Write(request);
  }
  ~TestWorker() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  // The next message of `kind`; others are passed over. Empty when the stream ended first.
  v1::SessionResponse Await(v1::SessionResponse::MessageCase kind) {
    v1::SessionResponse response;
    while (stream_->Read(&response)) {
      if (response.message_case() == kind) return response;
    }
    return {};
  }
  void Write(const v1::SessionRequest& request) { stream_->Write(request); }
  void Report(v1::RankReport report, const v1::Assignment& assignment) {
    report.set_job_id(assignment.job_id());
    report.set_epoch(assignment.epoch());
    report.set_rank(assignment.rank());
    v1::SessionRequest request;
    request.set_sequence(++sequence_);
    *request.mutable_report() = report;
    stream_->Write(request);
  }
  void AnswerInspection(const std::string& error) {
    v1::SessionRequest request;
    request.mutable_inspection()->set_request_id(
        Await(v1::SessionResponse::kInspectData).inspect_data().request_id());
    request.mutable_inspection()->set_error(error);
    stream_->Write(request);
  }
  // Reads to the end.
  grpc::Status End() {
    v1::SessionResponse response;
    while (stream_->Read(&response)) {
    }
    finished_ = true;
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  uint64_t sequence_ = 0;
  bool finished_ = false;
};

v1::JobSpec ValidSpec() {
  v1::JobSpec spec;
  spec.set_name("tiny");
  v1::ModelSpec* model = spec.mutable_model();
  model->set_arch(v1::ARCHITECTURE_GPT2);
  model->set_layers(1);
  model->set_hidden(32);
  model->set_heads(2);
  model->set_vocab(256);
  model->set_context(16);
  spec.mutable_data()->add_train("text");
  v1::TrainSpec* train = spec.mutable_train();
  train->set_steps(3);
  train->set_global_batch(4);
  train->set_micro_batch(2);
  train->mutable_optimizer()->set_lr(1e-3);
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_ZERO3);
  spec.mutable_elastic()->set_min_workers(1);
  spec.mutable_elastic()->set_max_workers(1);
  spec.mutable_checkpoint()->set_dir("out");
  return spec;
}

class ServerTest : public testing::Test {
 protected:
  ServerTest() : log_(*EventLog::Open(":memory:")) { Start(); }

  void Start() {
    coordinator_ = std::make_unique<InProcessCoordinator>(*log_);
    channel_ = grpc::CreateChannel(coordinator_->address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel_);
  }
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  }

  grpc::Status Submit(const std::string& request_id, const v1::JobSpec& spec,
                      v1::SubmitResponse* response) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SubmitRequest request;
    request.set_request_id(request_id);
    *request.mutable_spec() = spec;
    return jobs_->Submit(&context, request, response);
  }

  // The numbers of a job's feed after `after`: all of them when `limit` is 0.
  std::vector<int64_t> Watch(const std::string& job, int64_t after, size_t limit) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::WatchRequest request;
    request.set_job_id(job);
    request.set_after_sequence(after);
    const auto reader = jobs_->Watch(&context, request);
    std::vector<int64_t> sequences;
    v1::WatchResponse response;
    while ((limit == 0 || sequences.size() < limit) && reader->Read(&response)) {
      sequences.push_back(response.event().sequence());
    }
    if (limit != 0) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (limit == 0) {
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    return sequences;
  }

  // A unary call by name with serialised messages.
  grpc::Status Call(const std::string& method, const std::string& request, std::string* response) {
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Slice slice(request);
    const grpc::ByteBuffer message(&slice, 1);
    grpc::ByteBuffer answer;
    const grpc::internal::RpcMethod rpc(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer,
                                          grpc::ByteBuffer>(channel_.get(), rpc, &context, message,
                                                            &answer);
    std::vector<grpc::Slice> slices;
    if (status.ok() && answer.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) {
        response->append(reinterpret_cast<const char*>(part.begin()), part.size());
      }
    }
    return status;
  }

  std::unique_ptr<EventLog> log_;
  std::unique_ptr<InProcessCoordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

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
  ASSERT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + kDeadline));
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
