// Jobs over hosts, and what coordinators let time pass for, as workers hear of it.

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/runtime/state_time.h"
#include "coordinator/runtime/views.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/controller_fixture.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PatienceTest : public ControllerTest {
 protected:
  // A job of one rank on each of `hosts`.
  void Begin(const std::vector<std::string>& hosts, int64_t min_workers, int64_t replicas = 1) {
    for (const std::string& host : hosts) Connect(HelloFrom(host));
    v1::SubmitRequest request = RequestOf("request", static_cast<int64_t>(hosts.size()));
    request.mutable_spec()->mutable_elastic()->set_min_workers(min_workers);
    request.mutable_spec()->mutable_elastic()->set_replicas(replicas);
    job_ = Submit(request);
  }

  // The worker "w" and the host's name.
  static v1::Hello HelloFrom(const std::string& host) {
    v1::Hello hello = HelloOf("w" + host, 1);
    hello.set_host(host);
    hello.set_shared_memory_domain(host + "/0");
    hello.set_network_address("tcp:" + host + ":1");
    return hello;
  }

  v1::Hello HelloWithRank(const std::string& host, int rank, int64_t epoch = 1) {
    v1::Hello hello = HelloFrom(host);
    hello.set_job_id(job_.value());
    hello.set_epoch(epoch);
    hello.set_rank(rank);
    return hello;
  }

  void Say(const std::string& worker, const v1::RankReport& report) {
    Report(links_.at(worker), ++sequences_[worker], report);
  }

  // The rank's process holds `step` of its own shard and of no other.
  void Release(const std::string& worker, int rank, int64_t step, int world = 2) {
    v1::RankReport report = ReleasedReport(job_, rank);
    report.mutable_released()->set_step(step);
    *report.mutable_released()->add_holdings() = HoldingOf(1, world, rank, step);
    Say(worker, report);
  }

  void RunTwo(int64_t min_workers) {
    Begin({"a", "b"}, min_workers);
    Say("wa", ReadyReport(job_, 0));
    Say("wb", ReadyReport(job_, 1));
    Say("wa", StepReportOf(job_, 0, 1, 4.0));
    ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  }

  // Heartbeats of these until `duration` has passed.
  void Live(const std::vector<std::string>& workers, absl::Duration duration) {
    for (absl::Duration passed; passed < duration; passed += absl::Milliseconds(300)) {
      Advance(absl::Milliseconds(300));
      for (const std::string& worker : workers) Heartbeat(links_.at(worker));
    }
  }

  std::map<std::string, uint64_t> sequences_;
  JobId job_;
};

TEST_F(PatienceTest, WhoStoresForOtherHostsIsToldFirstAndAgainUntilTheWorldRuns) {
  Begin({"a", "b"}, 2);
  const auto sent = links_.at("wa")->Kinds();
  ASSERT_GE(sent.size(), 2);
  EXPECT_EQ(sent[sent.size() - 2], "hold");
  EXPECT_EQ(sent.back(), "assign");
  const v1::Hold& hold = links_.at("wa")->sent[sent.size() - 2].hold();
  EXPECT_EQ(hold.job_id(), job_.value());
  EXPECT_EQ(hold.epoch(), 1);
  EXPECT_EQ(hold.world(), 2);
  EXPECT_THAT(hold.owners(), ElementsAre(1));
  EXPECT_EQ(hold.secret(), links_.at("wa")->sent.back().assign().secret());
  EXPECT_THAT(links_.at("wa")->sent.back().assign().stored_for(), ElementsAre(1));
  EXPECT_THAT(links_.at("wa")->sent.back().assign().holders(), ElementsAre("tcp:b:1"));

  Disconnect(links_.at("wa"));
  EXPECT_THAT(Connect(HelloFrom("a"))->Kinds(), ElementsAre("welcome", "hold", "assign"));
  Disconnect(links_.at("wa"));
  EXPECT_THAT(Connect(HelloWithRank("a", 0))->Kinds(), ElementsAre("welcome", "hold"));
  Restart();
  EXPECT_THAT(Connect(HelloWithRank("a", 0))->Kinds(), ElementsAre("welcome", "hold"));
  Connect(HelloWithRank("b", 1));
  Say("wa", ReadyReport(job_, 0));
  Say("wb", ReadyReport(job_, 1));
  Disconnect(links_.at("wa"));
  EXPECT_THAT(Connect(HelloWithRank("a", 0))->Kinds(), ElementsAre("welcome"));
}

TEST_F(PatienceTest, AnIdleWorkerThatStoresIsToldToo) {
  Connect(HelloFrom("c"));
  Begin({"a"}, 1);
  const std::string holder = Job(job_).holders.at(0).worker.value();
  EXPECT_EQ(links_.at(holder)->Kinds().back(), "hold");
  EXPECT_THAT(links_.at(holder)->sent.back().hold().owners(), ElementsAre(0));
  Disconnect(links_.at(holder));
  EXPECT_THAT(Connect(HelloFrom(holder.substr(1)))->Kinds(), ElementsAre("welcome", "hold"));
}

TEST_F(PatienceTest, SilentWorkersAreWaitedForTwiceTheDetectionTime) {
  RunTwo(/*min_workers=*/1);
  Live({"wa"}, absl::Milliseconds(3600));
  ASSERT_FALSE(Worker("wb").alive);
  Release("wa", 0, 1);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  // A restarted coordinator waits anew.
  Live({"wa"}, absl::Seconds(4));
  Restart();
  Connect(HelloFrom("a"));
  Live({"wa"}, absl::Milliseconds(5400));
  EXPECT_EQ(Job(job_).epoch, Epoch(1));
  Live({"wa"}, absl::Milliseconds(900));
  EXPECT_EQ(Job(job_).epoch, Epoch(2));
  EXPECT_EQ(Job(job_).restore.step, 0);
}

TEST_F(PatienceTest, AllThatFrozeAndThawedLoseNothing) {
  RunTwo(/*min_workers=*/1);
  Advance(absl::Seconds(8));
  ASSERT_FALSE(Worker("wa").alive);
  ASSERT_FALSE(Worker("wb").alive);
  Connect(HelloWithRank("a", 0));
  Release("wa", 0, 1);
  EXPECT_EQ(Job(job_).epoch, Epoch(1));
  Live({"wa"}, absl::Seconds(5));
  EXPECT_EQ(Job(job_).epoch, Epoch(1));
  Connect(HelloWithRank("b", 1));
  Release("wb", 1, 1);
  EXPECT_EQ(Job(job_).epoch, Epoch(2));
  EXPECT_EQ(Job(job_).restore.step, 1);
  for (const v1::JobEvent& entry : Feed(job_)) EXPECT_FALSE(entry.has_rollback());
}

TEST_F(PatienceTest, StateIsSavedWhenNobodyComesForTheDetectionTime) {
  Begin({"a", "b"}, 2);
  Say("wa", ReadyReport(job_, 0));
  Say("wb", ReadyReport(job_, 1));
  Say("wa", StepReportOf(job_, 0, 1, 4.0));
  ReportExit("wb", 1, SIGKILL);
  v1::RankReport released = ReleasedReport(job_, 0);
  released.mutable_released()->set_step(1);
  for (const int owner : {0, 1}) {
    *released.mutable_released()->add_holdings() = HoldingOf(1, 2, owner, 1);
  }
  Say("wa", released);
  Live({"wa"}, absl::Milliseconds(2700));
  EXPECT_EQ(Job(job_).epoch, Epoch(1));
  Live({"wa"}, absl::Milliseconds(600));
  EXPECT_EQ(Job(job_).epoch, Epoch(2));
  EXPECT_TRUE(links_.at("wa")->sent.back().assign().save_and_stop());
  // A save is no step: it may take as long as the disk needs.
  Say("wa", ReadyReport(job_, 0, 2));
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live({"wa"}, absl::Seconds(119) + StateTime(Job(job_).spec));
  // At half of the time.
  EXPECT_EQ(TimesAsked("wa"), 2);
  Live({"wa"}, absl::Seconds(3));
  EXPECT_EQ(TimesAsked("wa"), 3);
  Live({"wa"}, absl::Seconds(2));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("does not say where it is"));
}

TEST_F(PatienceTest, ARestoreHasTheTimeThatItsBytesNeed) {
  RunTwo(/*min_workers=*/2);
  Say("wb", FailedReport(job_, 1, "no luck", -1));
  Release("wa", 0, 1);
  Release("wb", 1, 1);
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
  // 124 million parameters, 12 bytes each, 16 MiB a second.
  EXPECT_GT(StateTime(Job(job_).spec), absl::Seconds(85));
  EXPECT_LT(StateTime(Job(job_).spec), absl::Seconds(95));
  Live({"wa", "wb"}, absl::Seconds(200));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
  Live({"wa", "wb"}, absl::Seconds(20));
  EXPECT_THAT(Job(job_).reason, HasSubstr("the world did not form in time"));
}

TEST_F(PatienceTest, AWorldThatBeginsWithNothingFormsInTheUsualTime) {
  Begin({"a", "b"}, 2);
  Live({"wa", "wb"}, absl::Seconds(121));
  EXPECT_THAT(Job(job_).reason, HasSubstr("the world did not form in time"));
}

TEST_F(PatienceTest, AWorkerThatLeftOnRequestIsNoLoss) {
  Connect("w0");
  Connect("w1");
  controller_->jobs().Drain(WorkerId("w0"), [](const absl::StatusOr<v1::DrainResponse>&) {});
  EndTurn();
  ReportExit("w0", 1, 0, 0);
  EXPECT_EQ(StatusOf(Worker("w0")), "drained");
  ReportExit("w1", 1, SIGKILL);
  EXPECT_EQ(StatusOf(Worker("w1")), "lost");
}

}  // namespace
}  // namespace sherd
