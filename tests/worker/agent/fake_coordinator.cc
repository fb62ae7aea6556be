#include "tests/worker/agent/fake_coordinator.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "sherd/v1/worker.grpc.pb.h"

namespace sherd {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

struct FakeCoordinator::Service final : v1::WorkerService::Service {
  using Stream = grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>;

  grpc::Status Session(grpc::ServerContext* call, Stream* opened) override {
    v1::SessionRequest request;
    if (!opened->Read(&request)) return grpc::Status::OK;
    {
      absl::MutexLock lock(&mutex);
      heard.hellos.push_back(request.hello());
      if (!refusal.ok()) return ToGrpc(refusal);
      stream = opened;
      context = call;
      if (!silent) opened->Write(welcome);
    }
    while (opened->Read(&request)) Take(request, *opened);
    absl::MutexLock lock(&mutex);
    stream = nullptr;
    if (call->IsCancelled()) return grpc::Status::CANCELLED;
    ++heard.goodbyes;
    return grpc::Status::OK;
  }

  grpc::Status ReportExit(grpc::ServerContext*, const v1::ReportExitRequest* request,
                          v1::ReportExitResponse*) override {
    absl::MutexLock lock(&mutex);
    if (!refusal.ok()) return ToGrpc(refusal);
    heard.exits.push_back(*request);
    return grpc::Status::OK;
  }

  void Take(const v1::SessionRequest& request, Stream& opened) {
    absl::MutexLock lock(&mutex);
    if (request.has_heartbeat()) {
      ++heard.heartbeats;
      return;
    }
    heard.reports.push_back(request);
    if (!acknowledge_at_once || request.sequence() == 0) return;
    v1::SessionResponse response;
    response.set_acknowledged(request.sequence());
    welcome.set_acknowledged(request.sequence());
    opened.Write(response);
  }

  absl::Mutex mutex;
  Heard heard ABSL_GUARDED_BY(mutex);
  v1::SessionResponse welcome ABSL_GUARDED_BY(mutex);
  absl::Status refusal ABSL_GUARDED_BY(mutex);
  bool silent ABSL_GUARDED_BY(mutex) = false;
  bool acknowledge_at_once ABSL_GUARDED_BY(mutex) = false;
  Stream* stream ABSL_GUARDED_BY(mutex) = nullptr;
  grpc::ServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

FakeCoordinator::FakeCoordinator() : service_(std::make_unique<Service>()) {
  SetWelcome(1000, 0);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &service_->port);
  builder.RegisterService(service_.get());
  service_->server = builder.BuildAndStart();
}

FakeCoordinator::~FakeCoordinator() {
  service_->server->Shutdown(std::chrono::system_clock::now());
  service_->server->Wait();
}

std::string FakeCoordinator::address() const { return absl::StrCat("127.0.0.1:", service_->port); }

void FakeCoordinator::SetWelcome(int64_t heartbeat_interval_ms, uint64_t acknowledged) {
  absl::MutexLock lock(&service_->mutex);
  service_->welcome.mutable_welcome()->set_heartbeat_interval_ms(heartbeat_interval_ms);
  service_->welcome.set_acknowledged(acknowledged);
}

void FakeCoordinator::SetSilent(bool silent) {
  absl::MutexLock lock(&service_->mutex);
  service_->silent = silent;
}

void FakeCoordinator::Refuse(absl::Status status) {
  absl::MutexLock lock(&service_->mutex);
  service_->refusal = std::move(status);
}

void FakeCoordinator::AcknowledgeAtOnce() {
  absl::MutexLock lock(&service_->mutex);
  service_->acknowledge_at_once = true;
}

bool FakeCoordinator::Await(const char* what, const std::function<bool(const Heard&)>& done) {
  absl::MutexLock lock(&service_->mutex);
  const auto holds = [&]() ABSL_SHARED_LOCKS_REQUIRED(service_->mutex) {
    return done(service_->heard);
  };
  const bool in_time =
      service_->mutex.AwaitWithTimeout(absl::Condition(&holds), absl::Seconds(kPatienceSeconds));
  EXPECT_TRUE(in_time) << "waited in vain for " << what;
  return in_time;
}

Heard FakeCoordinator::heard() const {
  absl::MutexLock lock(&service_->mutex);
  return service_->heard;
}

void FakeCoordinator::Send(v1::SessionResponse message) {
  absl::MutexLock lock(&service_->mutex);
  ASSERT_NE(service_->stream, nullptr);
  service_->stream->Write(message);
}

void FakeCoordinator::Acknowledge(uint64_t sequence) {
  v1::SessionResponse response;
  response.set_acknowledged(sequence);
  Send(std::move(response));
}

void FakeCoordinator::Break() {
  absl::MutexLock lock(&service_->mutex);
  if (service_->stream != nullptr) service_->context->TryCancel();
}

}  // namespace sherd
