// Who may speak to whom: flags that contradict each other, files that are none, and certificates of
// strangers, over real connections on ports that the system chooses.

#include "common/rpc/security.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/rpc/health_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kPatience(20);

TEST(Security, PlainTextIsForLoopbackOrForThoseWhoSaySo) {
  for (const char* loopback : {"127.0.0.1:1", "127.3.2.1:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(CheckSecurity({}, loopback).ok()) << loopback;
  }
  for (const char* open : {"0.0.0.0:1", "10.0.0.1:1", "[::]:1", "host:1", "127.evil.example:1",
                           "127.0.0.1.evil.example:1", "127.0.0:1"}) {
    const absl::Status status = CheckSecurity({}, open);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << open;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(open), HasSubstr("--insecure")));
    EXPECT_TRUE(CheckSecurity({.insecure = true}, open).ok()) << open;
    EXPECT_TRUE(CheckSecurity({.ca = "a", .certificate = "c", .key = "k"}, open).ok()) << open;
  }
}

TEST(Security, HalfOfTheFilesAndContradictionsAreRefused) {
  EXPECT_FALSE(CheckSecurity({.ca = "a", .certificate = "c"}, "127.0.0.1:1").ok());
  EXPECT_FALSE(CheckSecurity({.key = "k"}, "127.0.0.1:1").ok());
  EXPECT_THAT(std::string(CheckSecurity(
                              {.ca = "a", .certificate = "c", .key = "k", .insecure = true}, "h:1")
                              .message()),
              HasSubstr("contradict"));
}

class Certificates : public testing::Test {
 protected:
  static SecurityOptions Options(const CertificateAuthority& ca,
                                 const CertificateAuthority::Files& files) {
    return {.ca = ca.path(), .certificate = files.certificate, .key = files.key};
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(directory_.path(), "/", name);
    std::ofstream(path) << text;
    return path;
  }

  TemporaryDirectory directory_;
  CertificateAuthority ours_{directory_.path(), "ours"};
  CertificateAuthority foreign_{directory_.path(), "foreign"};
  CertificateAuthority::Files server_ = ours_.Sign("server", {"IP:127.0.0.1", "coordinator"});
  CertificateAuthority::Files client_ = ours_.Sign("client", {});
};

TEST_F(Certificates, AFileThatIsNoneIsNamed) {
  const std::string text = Write("text", "no certificate");
  const auto error = [&](const SecurityOptions& options) {
    const auto server = MakeServerCredentials(options, "127.0.0.1:0");
    EXPECT_TRUE(absl::IsInvalidArgument(server.status()));
    return std::string(server.status().message());
  };
  SecurityOptions options = Options(ours_, server_);
  EXPECT_TRUE(MakeServerCredentials(options, "0.0.0.0:0").ok());

  options.ca = text;
  EXPECT_THAT(error(options), AllOf(HasSubstr("--tls-ca"), HasSubstr(text)));
  options.ca = "/not/there";
  EXPECT_THAT(error(options), AllOf(HasSubstr("/not/there"), HasSubstr("cannot be read")));
  options = Options(ours_, server_);
  options.certificate = text;
  EXPECT_THAT(error(options), HasSubstr("--tls-certificate"));
  options = Options(ours_, server_);
  options.key = server_.certificate;
  EXPECT_THAT(error(options), HasSubstr("no private key"));
  options.key = client_.key;
  EXPECT_THAT(error(options), HasSubstr("is not the key of"));
  EXPECT_THAT(error(Options(ours_, ours_.Sign("old", {}, /*expired=*/true))),
              HasSubstr("valid no more"));
}

TEST_F(Certificates, ATokenFileHoldsOneToken) {
  EXPECT_EQ(*ReadAuthorization({}), "");
  EXPECT_EQ(*ReadAuthorization({.token = Write("token", "\ts3cret\n")}), "Bearer s3cret");
  for (const std::string& path :
       {Write("empty", "\n"), Write("two", "one two"), Write("long", std::string(5000, 'x')),
        std::string("/not/there")}) {
    const absl::Status status = ReadAuthorization({.token = path}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), Not(HasSubstr("one two"))));
  }
}

// A server that demands certificates, and health checks as its calls.
class Connections : public Certificates {
 protected:
  Connections() {
    grpc::EnableDefaultHealthCheckService(true);
    const auto credentials = MakeServerCredentials(Options(ours_, server_), "127.0.0.1:0");
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port);
    builder.RegisterCallbackGenericService(&nothing_);
    running_ = builder.BuildAndStart();
    port_ = port;
  }
  ~Connections() override { running_->Shutdown(); }

  // Whether somebody with `options` gets a connection to `host`.
  bool Reaches(const SecurityOptions& options, const std::string& host = "127.0.0.1") {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = MakeChannel(options, absl::StrCat(host, ":", port_), arguments);
    EXPECT_TRUE(channel.ok()) << channel.status();
    (*channel)->GetState(/*try_to_connect=*/true);
    const auto deadline = std::chrono::system_clock::now() + kPatience;
    grpc_connectivity_state state = (*channel)->GetState(true);
    while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
      if (!(*channel)->WaitForStateChange(state, deadline)) break;
      state = (*channel)->GetState(true);
    }
    if (state != GRPC_CHANNEL_READY) return false;
    // In TLS 1.3 a client learns only now that its certificate was not believed.
    grpc::GenericStub stub(*channel);
    grpc::ClientContext context;
    context.set_deadline(deadline);
    grpc::CompletionQueue queue;
    grpc::ByteBuffer request, response;
    grpc::Slice nothing("");
    request = grpc::ByteBuffer(&nothing, 1);
    const auto call =
        stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&response, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.ok();
  }

  grpc::CallbackGenericService nothing_;
  std::unique_ptr<grpc::Server> running_;
  int port_ = 0;
};

TEST_F(Connections, BothSidesMustBeSignedByOurs) {
  EXPECT_TRUE(Reaches(Options(ours_, client_)));
  EXPECT_FALSE(Reaches({})) << "plain text";
  EXPECT_FALSE(Reaches(Options(ours_, foreign_.Sign("stranger", {})))) << "a stranger's client";
  EXPECT_FALSE(Reaches(Options(foreign_, client_))) << "a server that the client does not believe";
}

TEST_F(Connections, TheServersNameMustBeTheOneThatIsCalled) {
  SecurityOptions options = Options(ours_, client_);
  EXPECT_FALSE(Reaches(options, "localhost"));
  options.server_name = "coordinator";
  EXPECT_TRUE(Reaches(options, "localhost"));
  options.server_name = "another";
  EXPECT_FALSE(Reaches(options, "localhost"));
}

TEST_F(Connections, RenewedFilesAreTakenUpWithoutARestart) {
  CertificateAuthority next(directory_.path(), "next");
  const CertificateAuthority::Files renewed = next.Sign("renewed", {});
  EXPECT_FALSE(Reaches(Options(ours_, renewed)));
  // The server believes both for a while, as whoever changes an authority has it.
  std::ifstream first(ours_.path()), second(next.path());
  const std::string both = absl::StrCat(std::string(std::istreambuf_iterator<char>(first), {}),
                                        std::string(std::istreambuf_iterator<char>(second), {}));
  std::filesystem::rename(Write("both", both), ours_.path());
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool reached = false;
  while (!reached && std::chrono::steady_clock::now() < deadline) {
    reached = Reaches(Options(ours_, renewed));
  }
  EXPECT_TRUE(reached);
  EXPECT_TRUE(Reaches(Options(ours_, client_)));
}

TEST(HealthServer, AnswersForEachServiceAndNothingElse) {
  const auto server = HealthServer::Start("127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Set("ready", false);
  const auto channel =
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials());
  const auto ask = [&](const char* method, const std::string& service) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    // message HealthCheckRequest { string service = 1; }
    const std::string text =
        service.empty()
            ? ""
            : absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
    grpc::Slice slice(text);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    grpc::ByteBuffer response;
    grpc::Status status;
    call->StartCall();
    call->Finish(&response, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (!status.ok()) return absl::StrCat("error ", status.error_code());
    grpc::Slice answer;
    EXPECT_TRUE(response.DumpToSingleSlice(&answer).ok());
    // enum ServingStatus status = 1: 1 serves, 2 does not.
    return absl::StrCat(answer.size() == 2 ? static_cast<int>(answer.begin()[1]) : -1);
  };
  constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
  EXPECT_EQ(ask(kCheck, ""), "1");
  EXPECT_EQ(ask(kCheck, "ready"), "2");
  (*server)->Set("ready", true);
  EXPECT_EQ(ask(kCheck, "ready"), "1");
  EXPECT_EQ(ask(kCheck, "nobody"), absl::StrCat("error ", grpc::StatusCode::NOT_FOUND));
  EXPECT_EQ(ask("/sherd.v1.JobService/ListJobs", ""),
            absl::StrCat("error ", grpc::StatusCode::UNIMPLEMENTED));
}

}  // namespace
}  // namespace sherd
