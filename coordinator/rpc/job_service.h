#pragma once

#include "absl/time/time.h"
#include "coordinator/rpc/access.h"
#include "coordinator/rpc/ask.h"
#include "coordinator/rpc/rpc_counter.h"
#include "sherd/v1/job_service.grpc.pb.h"

namespace sherd {

// The users' edge: checks who calls and requests, asks the event loop, and turns its answers into
// gRPC's. Each call has a thread of gRPC's own.
class JobService final : public v1::JobService::Service {
 public:
  JobService(EventLoop& loop, RpcCounter& counter, Access& access)
      : loop_(loop), counter_(counter), access_(access) {}

  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override;
  grpc::Status Cancel(grpc::ServerContext* context, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override;
  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override;

 private:
  // Asks the loop when whoever calls has the role; the answer becomes `response` or the status, and
  // is counted.
  template <typename T>
  grpc::Status Forward(const char* method, const grpc::ServerContext& context, Role role,
                       absl::Duration patience, T* response,
                       std::function<void(Controller&, Reply<T>)> question);
  grpc::Status Finish(const char* method, const absl::Status& status);
  absl::Status Stream(grpc::ServerContext& context, const v1::WatchRequest& request,
                      grpc::ServerWriter<v1::WatchResponse>& writer);

  EventLoop& loop_;
  RpcCounter& counter_;
  Access& access_;
};

}  // namespace sherd
