#pragma once

#include "coordinator/rpc/access.h"
#include "coordinator/rpc/rpc_counter.h"
#include "coordinator/runtime/event_loop.h"
#include "sherd/v1/worker.grpc.pb.h"

namespace sherd {

// The workers' edge. Sessions are reactors, so that a stream costs no thread and can be ended from
// this side while a read is outstanding.
class WorkerService final
    : public v1::WorkerService::WithCallbackMethod_Session<v1::WorkerService::Service> {
 public:
  WorkerService(EventLoop& loop, RpcCounter& counter, Access& access)
      : loop_(loop), counter_(counter), access_(access) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::Status ReportExit(grpc::ServerContext* context, const v1::ReportExitRequest* request,
                          v1::ReportExitResponse* response) override;

 private:
  EventLoop& loop_;
  RpcCounter& counter_;
  Access& access_;
};

}  // namespace sherd
