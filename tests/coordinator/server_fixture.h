// A coordinator in this process behind its gRPC edge, and a worker's stream.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/rpc/server.h"
#include "coordinator/runtime/controller.h"
#include "coordinator/runtime/event_loop.h"
#include "coordinator/runtime/steady_clock.h"
#include "gtest/gtest.h"
#include "sherd/v1/job_service.grpc.pb.h"
#include "sherd/v1/worker.grpc.pb.h"

namespace sherd {

// Of every call.
inline constexpr std::chrono::seconds kCallDeadline(20);

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
    context_.set_deadline(std::chrono::system_clock::now() + kCallDeadline);
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

inline v1::JobSpec ValidSpec() {
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
    context.set_deadline(std::chrono::system_clock::now() + kCallDeadline);
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

}  // namespace sherd
