#include "worker/agent/session.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/worker/agent/fake_coordinator.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kIncarnation = 77;

// Records what the session hears; blocks in OnAssign while the test wants it.
class RecordingHandler final : public SessionHandler {
 public:
  v1::Hello MakeHello() override {
    v1::Hello hello;
    hello.set_worker_id("host/cpu:0");
    hello.set_incarnation(kIncarnation);
    return hello;
  }
  void OnConnected() override {
    absl::MutexLock lock(&mutex_);
    ++connected_;
  }
  void OnDisconnected() override {
    absl::MutexLock lock(&mutex_);
    ++disconnected_;
  }
  void OnAssign(v1::Assignment assignment) override {
    {
      absl::MutexLock lock(&mutex_);
      assigned_.push_back(assignment.job_id());
    }
    if (assignment.job_id() == "block") unblock.WaitForNotification();
  }
  void OnAbort(v1::Abort) override {}
  void OnInspect(v1::InspectData) override {}
  void OnShutdown(v1::Shutdown) override {}
  void OnReportHoldings(v1::ReportHoldings) override {}
  void OnRetain(v1::Retain) override {}
  void OnPause(v1::Pause) override {}
  void OnLocate(v1::LocateRank) override {}
  void OnHold(v1::Hold) override {}
  void OnEnded(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    ended_ = std::move(why);
  }

  bool AwaitAssigned(const std::string& job) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return std::count(assigned_.begin(), assigned_.end(), job) > 0;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(kPatienceSeconds));
  }
  absl::Status AwaitEnd() {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_.has_value(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(kPatienceSeconds))) {
      return absl::UnknownError("the session did not end");
    }
    return *ended_;
  }
  std::pair<int, int> ups_and_downs() {
    absl::MutexLock lock(&mutex_);
    return {connected_, disconnected_};
  }

  absl::Notification unblock;

 private:
  absl::Mutex mutex_;
  std::vector<std::string> assigned_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  int connected_ ABSL_GUARDED_BY(mutex_) = 0;
  int disconnected_ ABSL_GUARDED_BY(mutex_) = 0;
};

SessionOptions Options(const std::string& address) {
  SessionOptions options;
  options.coordinator = address;
  options.first_backoff = absl::Milliseconds(1);
  options.longest_backoff = absl::Milliseconds(20);
  return options;
}

v1::RankReport Step(int64_t step) {
  v1::RankReport report;
  report.set_job_id("a");
  report.mutable_step()->set_step(step);
  return report;
}

std::vector<int64_t> StepsOf(const Heard& heard) {
  std::vector<int64_t> steps;
  for (const v1::SessionRequest& request : heard.reports) {
    steps.push_back(request.report().step().step());
  }
  return steps;
}

TEST(Session, SaysHelloFirstAndSendsReportsInOrder) {
  FakeCoordinator coordinator;
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Send(Step(1));
  session.Start();
  session.Send(Step(2));
  ASSERT_TRUE(
      coordinator.Await("reports", [](const Heard& heard) { return heard.reports.size() == 2; }));
  EXPECT_THAT(StepsOf(coordinator.heard()), ElementsAre(1, 2));
  EXPECT_EQ(coordinator.heard().reports[0].sequence(), 1u);
  EXPECT_EQ(coordinator.heard().reports[1].sequence(), 2u);
  ASSERT_EQ(coordinator.heard().hellos.size(), 1u);
  EXPECT_EQ(coordinator.heard().hellos[0].worker_id(), "host/cpu:0");
}

TEST(Session, MendsTextThatIsNotUtf8) {
  FakeCoordinator coordinator;
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  v1::RankReport report;
  report.set_job_id("a");
  report.mutable_failed()->set_error("caf\xe9 is missing");
  report.mutable_failed()->set_operation("read \xc3\xa9");
  session.Send(report);
  session.Start();
  ASSERT_TRUE(
      coordinator.Await("report", [](const Heard& heard) { return !heard.reports.empty(); }));
  const v1::RankFailed failed = coordinator.heard().reports[0].report().failed();
  EXPECT_EQ(failed.error(), "caf\xef\xbf\xbd is missing");
  EXPECT_EQ(failed.operation(), "read \xc3\xa9");
}

// F30: UNAVAILABLE, once or often, ends nothing. F24: the same incarnation comes back.
TEST(Session, OutlivesACoordinatorThatIsUnavailableForAWhile) {
  FakeCoordinator coordinator;
  coordinator.Refuse(absl::UnavailableError("starting"));
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  session.Send(Step(1));
  ASSERT_TRUE(
      coordinator.Await("attempts", [](const Heard& heard) { return heard.hellos.size() >= 4; }));
  coordinator.Refuse(absl::OkStatus());
  ASSERT_TRUE(coordinator.Await("the report",
                                [](const Heard& heard) { return heard.reports.size() == 1; }));
  for (const v1::Hello& hello : coordinator.heard().hellos) {
    EXPECT_EQ(hello.incarnation(), kIncarnation);
  }
}

TEST(Session, SendsWhatABrokenStreamLostAgainAndOnlyThat) {
  FakeCoordinator coordinator;
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  for (int64_t step = 1; step <= 5; ++step) session.Send(Step(step));
  ASSERT_TRUE(
      coordinator.Await("reports", [](const Heard& heard) { return heard.reports.size() == 5; }));
  // The coordinator has stored three; the acknowledgement of the third is lost with the stream.
  coordinator.Acknowledge(2);
  coordinator.SetWelcome(1000, 3);
  coordinator.Break();
  ASSERT_TRUE(
      coordinator.Await("the rest", [](const Heard& heard) { return heard.reports.size() >= 7; }));
  session.Send(Step(6));
  ASSERT_TRUE(
      coordinator.Await("news", [](const Heard& heard) { return heard.reports.size() >= 8; }));
  EXPECT_THAT(StepsOf(coordinator.heard()), ElementsAre(1, 2, 3, 4, 5, 4, 5, 6));
  EXPECT_EQ(coordinator.heard().reports[5].sequence(), 4u);
  EXPECT_EQ(coordinator.heard().hellos.size(), 2u);
  EXPECT_EQ(handler.ups_and_downs(), std::make_pair(2, 1));
}

// Every report takes effect once however often the stream breaks, for a coordinator that counts.
TEST(Session, LosesNoReportAndRepeatsNoneAcrossManyBreaks) {
  FakeCoordinator coordinator;
  coordinator.AcknowledgeAtOnce();
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  constexpr int64_t kSteps = 200;
  for (int64_t step = 1; step <= kSteps; ++step) {
    session.Send(Step(step));
    if (step % 20 != 0) continue;
    const size_t streams = static_cast<size_t>(step / 20);
    ASSERT_TRUE(coordinator.Await("a new stream that carries reports", [&](const Heard& heard) {
      return heard.hellos.size() == streams && !heard.reports.empty();
    }));
    coordinator.Break();
  }
  ASSERT_TRUE(session.Flush(absl::Seconds(kPatienceSeconds)));
  std::set<uint64_t> taken;
  uint64_t newest = 0;
  for (const v1::SessionRequest& request : coordinator.heard().reports) {
    if (request.sequence() <= newest) continue;
    EXPECT_EQ(request.sequence(), newest + 1) << "a gap";
    newest = request.sequence();
    EXPECT_EQ(request.report().step().step(), static_cast<int64_t>(newest));
  }
  EXPECT_EQ(newest, static_cast<uint64_t>(kSteps));
}

// F40: whatever keeps the worker busy, its lease is renewed.
TEST(Session, HeartbeatsGoOnWhileTheHandlerIsBlocked) {
  FakeCoordinator coordinator;
  coordinator.SetWelcome(/*heartbeat_interval_ms=*/2, 0);
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  ASSERT_TRUE(
      coordinator.Await("a heartbeat", [](const Heard& heard) { return heard.heartbeats > 0; }));
  v1::SessionResponse assign;
  assign.mutable_assign()->set_job_id("block");
  coordinator.Send(assign);
  ASSERT_TRUE(handler.AwaitAssigned("block"));
  const int before = coordinator.heard().heartbeats;
  EXPECT_TRUE(coordinator.Await(
      "heartbeats", [before](const Heard& heard) { return heard.heartbeats > before + 20; }));
  handler.unblock.Notify();
}

TEST(Session, TriesAnewWhenHelloIsNotAnswered) {
  FakeCoordinator coordinator;
  coordinator.SetSilent(true);
  RecordingHandler handler;
  SessionOptions options = Options(coordinator.address());
  options.welcome_timeout = absl::Milliseconds(20);
  Session session(options, handler);
  session.Start();
  ASSERT_TRUE(coordinator.Await("a second hello",
                                [](const Heard& heard) { return heard.hellos.size() >= 2; }));
  coordinator.SetSilent(false);
  session.Send(Step(1));
  EXPECT_TRUE(
      coordinator.Await("the report", [](const Heard& heard) { return !heard.reports.empty(); }));
}

TEST(Session, EndsWhenANewerIncarnationHasTakenTheId) {
  FakeCoordinator coordinator;
  coordinator.Refuse(absl::AlreadyExistsError("a newer process of worker host/cpu:0"));
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  const absl::Status why = handler.AwaitEnd();
  EXPECT_EQ(why.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(why.message()), HasSubstr("another process has taken this worker's id"));
  EXPECT_EQ(coordinator.heard().hellos.size(), 1u);
}

// A port that is taken and that nobody listens on: a connection to it is refused.
class DeafPort {
 public:
  DeafPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~DeafPort() { close(socket_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int socket_;
  int port_ = 0;
};

TEST(Session, GivesUpOnACoordinatorThatWasNeverThereWithASentence) {
  DeafPort port;
  RecordingHandler handler;
  SessionOptions options = Options(port.address());
  options.connect_timeout = absl::Milliseconds(100);
  Session session(options, handler);
  session.Start();
  const absl::Status why = handler.AwaitEnd();
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(why.message()),
              HasSubstr(absl::StrCat("no coordinator at ", port.address(), " within 100ms")));
}

TEST(Session, StopsAtOnceWhileItTriesToConnect) {
  DeafPort port;
  RecordingHandler handler;
  SessionOptions options = Options(port.address());
  options.first_backoff = absl::Hours(1);
  options.longest_backoff = absl::Hours(1);
  Session session(options, handler);
  session.Start();
  session.Stop();
  EXPECT_EQ(handler.ups_and_downs(), std::make_pair(0, 0));
}

TEST(Session, SaysGoodbyeWhenItStops) {
  FakeCoordinator coordinator;
  coordinator.AcknowledgeAtOnce();
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  session.Send(Step(1));
  EXPECT_TRUE(session.Flush(absl::Seconds(kPatienceSeconds)));
  session.Stop();
  EXPECT_TRUE(
      coordinator.Await("a goodbye", [](const Heard& heard) { return heard.goodbyes == 1; }));
}

TEST(Session, FlushWaitsForTheAcknowledgement) {
  FakeCoordinator coordinator;
  RecordingHandler handler;
  Session session(Options(coordinator.address()), handler);
  session.Start();
  session.Send(Step(1));
  ASSERT_TRUE(coordinator.Await("the report",
                                [](const Heard& heard) { return heard.reports.size() == 1; }));
  EXPECT_FALSE(session.Flush(absl::Milliseconds(5)));
  coordinator.Acknowledge(1);
  EXPECT_TRUE(session.Flush(absl::Seconds(kPatienceSeconds)));
}

TEST(Session, TellsWhenAReportHadToBeDropped) {
  DeafPort port;
  RecordingHandler handler;
  SessionOptions options = Options(port.address());
  options.report_capacity = 2;
  Session session(options, handler);
  session.Start();
  EXPECT_TRUE(session.Send(Step(1)));
  EXPECT_TRUE(session.Send(Step(2)));
  EXPECT_FALSE(session.Send(Step(3)));
}

}  // namespace
}  // namespace sherd
