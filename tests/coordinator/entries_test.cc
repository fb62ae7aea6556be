// Each entry of the coordinator, tried by each kind of caller: strangers, and holders of tokens
// that are for something else.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/security.h"
#include "coordinator/rpc/server.h"
#include "coordinator/runtime/controller.h"
#include "coordinator/runtime/event_loop.h"
#include "coordinator/runtime/steady_clock.h"
#include "gtest/gtest.h"
#include "sherd/v1/job_service.grpc.pb.h"
#include "sherd/v1/worker.grpc.pb.h"
#include "tests/support/certificates.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

constexpr std::chrono::seconds kPatience(20);

// One call with a token, "" for none; its status.
struct Entry {
  const char* name;
  // The roles that may call it: v, s, a, w.
  const char* allowed;
  std::function<grpc::Status(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext&)> call;
};

template <typename Request, typename Response>
Entry JobEntry(const char* name, const char* allowed,
               grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*)) {
  return {name, allowed,
          [method](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context) {
            Response response;
            return (v1::JobService::NewStub(channel).get()->*method)(&context, Request(),
                                                                     &response);
          }};
}

std::vector<Entry> Entries() {
  using Stub = v1::JobService::Stub;
  return {
      JobEntry("Submit", "sa", &Stub::Submit),
      JobEntry("ListJobs", "vsa", &Stub::ListJobs),
      JobEntry("GetJob", "vsa", &Stub::GetJob),
      JobEntry("Cancel", "sa", &Stub::Cancel),
      JobEntry("ListWorkers", "vsa", &Stub::ListWorkers),
      JobEntry("Drain", "a", &Stub::Drain),
      {"Watch", "vsa",
       [](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context) {
         const auto stub = v1::JobService::NewStub(channel);
         const auto reader = stub->Watch(&context, v1::WatchRequest());
         v1::WatchResponse response;
         while (reader->Read(&response)) {
         }
         return reader->Finish();
       }},
      {"Session", "w",
       [](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context) {
         const auto stub = v1::WorkerService::NewStub(channel);
         const auto stream = stub->Session(&context);
         // No Hello: whoever is let in is told so.
         stream->Write(v1::SessionRequest());
         v1::SessionResponse response;
         while (stream->Read(&response)) {
         }
         return stream->Finish();
       }},
      {"ReportExit", "w",
       [](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context) {
         v1::ReportExitResponse response;
         return v1::WorkerService::NewStub(channel)->ReportExit(&context, v1::ReportExitRequest(),
                                                                &response);
       }},
  };
}

class EntriesTest : public testing::Test {
 protected:
  EntriesTest()
      : log_(*EventLog::Open(":memory:")),
        metrics_(*registry_),
        controller_(
            {}, clock_, *log_, [](int bytes) { return std::string(bytes, 's'); }, metrics_),
        loop_(controller_, clock_, metrics_) {
    EXPECT_TRUE(controller_.Recover().ok());
    const CertificateAuthority::Files own = ca_.Sign("coordinator", {"IP:127.0.0.1"});
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(
        {.address = "127.0.0.1:0",
         .security = {.ca = ca_.path(), .certificate = own.certificate, .key = own.key},
         .tokens = directory_.Write("tokens", Tokens())},
        loop_, *registry_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { EXPECT_TRUE(loop_.Run().ok()); });
  }
  ~EntriesTest() override {
    loop_.Stop();
    thread_.join();
    server_.reset();
  }

  // The tokens are the roles' own names: printf %s ROLE | sha256sum.
  static std::string Tokens() {
    return "view v 2bcb43cbc8f6b7ef66331532881143fcbae60a879db3a8fb853f645bb24c2b3c\n"
           "submit s 75490bd7b93e6fa7d18cfdea90cc6bcb983d5f3ea326249d2709ca6c94bc07ba\n"
           "admin a 8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918\n"
           "worker w 87eba76e7f3164534045ba922e7770fb58bbd14ad732bbf5ba6f11cc56989e6e\n";
  }

  SecurityOptions Caller(const CertificateAuthority::Files& files) const {
    return {.ca = ca_.path(), .certificate = files.certificate, .key = files.key};
  }
  std::shared_ptr<grpc::Channel> ChannelOf(const SecurityOptions& options) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return *MakeChannel(options, server_->address(), arguments);
  }
  static grpc::Status Call(const Entry& entry, const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& token) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    return entry.call(channel, context);
  }

  TemporaryDirectory directory_;
  CertificateAuthority ca_{directory_.path(), "ours"};
  CertificateAuthority foreign_{directory_.path(), "foreign"};
  const SteadyClock clock_;
  std::unique_ptr<EventLog> log_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  CoordinatorMetrics metrics_;
  Controller controller_;
  EventLoop loop_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(EntriesTest, EachIsForItsRolesAlone) {
  const auto channel = ChannelOf(Caller(ca_.Sign("client", {})));
  for (const Entry& entry : Entries()) {
    EXPECT_EQ(Call(entry, channel, "").error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << entry.name;
    EXPECT_EQ(Call(entry, channel, "guess").error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << entry.name;
    for (const char* role : {"view", "submit", "admin", "worker"}) {
      const grpc::Status status = Call(entry, channel, role);
      const bool allowed = std::string(entry.allowed).find(role[0]) != std::string::npos;
      // What is let in is refused for what it says, or answered.
      EXPECT_EQ(status.error_code() == grpc::StatusCode::PERMISSION_DENIED, !allowed)
          << entry.name << " by " << role << ": " << status.error_message();
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << entry.name;
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << entry.name;
    }
  }
}

TEST_F(EntriesTest, StrangersAreNotEvenHeard) {
  const std::vector<std::pair<const char*, SecurityOptions>> kStrangers = {
      {"plain text", SecurityOptions{}},
      {"signed by another", Caller(foreign_.Sign("stranger", {}))}};
  for (const auto& [what, options] : kStrangers) {
    const auto channel = ChannelOf(options);
    for (const Entry& entry : Entries()) {
      EXPECT_EQ(Call(entry, channel, "admin").error_code(), grpc::StatusCode::UNAVAILABLE)
          << entry.name << ", " << what;
    }
  }
}

}  // namespace
}  // namespace sherd
