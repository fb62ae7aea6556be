// Workers as the coordinator hears them: streams, leases, restarts.

#include <csignal>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/fleet_fixture.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(FleetTest, WelcomesAssignsAndAcknowledges) {
  EXPECT_THAT(second_->Kinds(), ElementsAre("welcome", "assign", "ack 1"));
  EXPECT_EQ(second_->sent[0].welcome().heartbeat_interval_ms(), 300);
  EXPECT_EQ(second_->sent[1].assign().rank(), 1);
  EXPECT_EQ(second_->sent[1].assign().secret(), std::string(32, 's') + ":1");
}

TEST_F(FleetTest, AFrozenWorkerIsLostWhenItsLeaseLapses) {
  Live(absl::Seconds(10), {first_, second_});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live(absl::Milliseconds(2900), {first_});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live(absl::Milliseconds(600), {first_});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, AllOf(HasSubstr("rank 1 on worker w1"), HasSubstr("lease lapsed")));
  EXPECT_EQ(first_->Kinds().back(), "abort");
  EXPECT_EQ(second_->closed->code(), absl::StatusCode::kUnavailable);
}

TEST_F(FleetTest, NoLeaseEndsForTheCoordinatorsOwnPause) {
  Freeze(absl::Seconds(60));
  Live(absl::Seconds(2), {first_, second_});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(FleetTest, AStreamThatIsResumedInTimeChangesNothing) {  // F30
  Disconnect(second_);
  Advance(absl::Milliseconds(200));
  const auto again = Connect(HelloWithRank("w1", 1));
  Live(absl::Seconds(1), {first_, again});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(again->Kinds(), ElementsAre("welcome"));
  // Reports up to here need not be sent again.
  EXPECT_EQ(again->sent[0].acknowledged(), 1u);
}

TEST_F(FleetTest, AStreamThatIsNotResumedIsADeath) {  // F21
  Disconnect(second_);
  Advance(absl::Milliseconds(249));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(first_->Kinds(), testing::Not(testing::Contains("abort")));
  Advance(absl::Milliseconds(2));
  // The others stop at once; the worker may still come back, or its reason be told.
  EXPECT_EQ(first_->Kinds().back(), "abort");
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_TRUE(Worker("w1").alive);
  Advance(absl::Milliseconds(200));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, AllOf(HasSubstr("rank 1 on worker w1 was lost"),
                                      HasSubstr("not resumed within 250ms")));
}

TEST_F(FleetTest, TheSupervisorsReportIsTheReasonWhenItComesAfterTheResumeWindow) {  // F21, F54
  Disconnect(second_);
  Report(first_, 2, FailedReport(job_, 0, "peer 1 closed its link", 1));
  Advance(absl::Milliseconds(400));
  ReportExit("w1", 1, SIGKILL);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("killed by signal 9 (SIGKILL)"));
}

TEST_F(FleetTest, AStreamThatIsResumedLateFindsItsJobAborted) {  // F30
  Disconnect(second_);
  Advance(absl::Milliseconds(300));
  const auto again = Connect(HelloWithRank("w1", 1));
  EXPECT_THAT(again->Kinds(), ElementsAre("welcome", "abort"));
  Report(again, 2, ReleasedReport(job_, 1));
  Advance(absl::Seconds(1));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_TRUE(Worker("w1").alive);
  EXPECT_FALSE(Worker("w1").seat);
  // Nobody is blamed for the moment: the same two go on.
  Report(first_, 2, ReleasedReport(job_, 0));
  EXPECT_EQ(Job(job_).epoch, Epoch(2));
  EXPECT_THAT(again->Kinds(), ElementsAre("welcome", "abort", "ack 2", "assign"));
}

TEST_F(FleetTest, ASecondBreakStartsANewWindow) {
  Disconnect(second_);
  Advance(absl::Milliseconds(200));
  const auto again = Connect(HelloWithRank("w1", 1));
  Disconnect(again);
  Advance(absl::Milliseconds(200));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Advance(absl::Milliseconds(260));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
}

TEST_F(FleetTest, TheSupervisorsReportIsTheReasonWhenItComesFirst) {  // F21, F54
  Report(first_, 2, StepReportOf(job_, 0, 17, 2.5));
  Disconnect(second_);
  Advance(absl::Milliseconds(20));
  ReportExit("w1", 1, SIGKILL);
  EXPECT_EQ(Job(job_).reason,
            "rank 1 on worker w1 was lost after step 17: killed by signal 9 (SIGKILL)");
  Advance(absl::Seconds(1));
  EXPECT_THAT(Job(job_).reason, HasSubstr("SIGKILL"));
}

TEST_F(FleetTest, AnExitOfAnotherLifeIsIgnored) {
  ReportExit("w1", 99, SIGKILL);
  ReportExit("stranger", 1, SIGKILL);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(FleetTest, TheExitSignalIsABetterReasonThanASuspicion) {  // F21, F22
  Report(first_, 2, FailedReport(job_, 0, "peer 1 closed its link", 1));
  EXPECT_EQ(first_->Kinds().back(), "ack 2");
  EXPECT_THAT(first_->Kinds(), testing::Contains("abort"));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  Advance(absl::Milliseconds(30));
  ReportExit("w1", 1, SIGSEGV);
  EXPECT_THAT(Job(job_).reason, HasSubstr("signal 11 (SIGSEGV)"));
}

TEST_F(FleetTest, AWorkerThatNeverReleasesIsGivenUpAndAskedToEnd) {  // F33
  Report(first_, 2, FailedReport(job_, 0, "no memory", -1));
  Report(first_, 3, ReleasedReport(job_, 0));
  Live(absl::Seconds(11), {first_, second_});
  EXPECT_FALSE(Worker("w1").alive);
  EXPECT_THAT(second_->Kinds(), testing::Contains("shutdown"));
  EXPECT_TRUE(second_->closed);
  EXPECT_TRUE(Worker("w0").alive);
  EXPECT_FALSE(Worker("w0").seat);
}

TEST_F(FleetTest, AReportSentAgainTakesEffectOnce) {
  Report(first_, 2, StepReportOf(job_, 0, 1, 3.5));
  const size_t entries = Feed(job_).size();
  Report(first_, 2, StepReportOf(job_, 0, 1, 3.5));
  EXPECT_THAT(Feed(job_), SizeIs(entries));
  EXPECT_EQ(first_->Kinds().back(), "ack 2");
}

TEST_F(FleetTest, ANewProcessNumbersItsReportsFromOneAgain) {
  Report(second_, 2, StepReportOf(job_, 1, 1, 3.5));
  ReportExit("w1", 1, SIGKILL);
  Report(first_, 2, ReleasedReport(job_, 0));
  const auto newer = Connect("w1", 2);
  EXPECT_EQ(newer->sent[0].acknowledged(), 0u);
  ASSERT_EQ(Job(job_).epoch, Epoch(2));
  Report(newer, 1, ReadyReport(job_, 1, 2));
  EXPECT_EQ(Job(job_).ranks[1].phase, RankPhase::kRunning);
}

TEST_F(FleetTest, OnlyRankZerosStepsArePublished) {
  const size_t entries = Feed(job_).size();
  Report(second_, 2, StepReportOf(job_, 1, 1, 3.5));
  EXPECT_THAT(Feed(job_), SizeIs(entries));
  Report(first_, 2, StepReportOf(job_, 0, 1, 3.25));
  ASSERT_THAT(Feed(job_), SizeIs(entries + 1));
  EXPECT_EQ(Feed(job_).back().step().loss(), 3.25);
  EXPECT_EQ(Feed(job_).back().sequence(), static_cast<int64_t>(entries + 1));
}

TEST_F(FleetTest, ReportsOfAnotherEpochOrRankAreNotPublished) {
  const size_t entries = Feed(job_).size();
  v1::RankReport stale = StepReportOf(job_, 0, 1, 3.5);
  stale.set_epoch(2);
  Report(first_, 2, stale);
  Report(second_, 2, StepReportOf(job_, 0, 1, 3.5));
  v1::RankReport wild = StepReportOf(job_, 7, 1, 3.5);
  Report(first_, 3, wild);
  EXPECT_THAT(Feed(job_), SizeIs(entries));
}

TEST_F(FleetTest, ANewerProcessIsWelcomeAndTheOldOneIsNot) {  // F24
  Disconnect(second_);
  const auto newer = Connect("w1", 2);
  Advance(absl::Milliseconds(501));
  ASSERT_THAT(newer->sent, testing::Not(IsEmpty()));
  EXPECT_EQ(newer->Kinds().front(), "welcome");
  const auto old = Connect("w1", 1);
  EXPECT_EQ(old->closed->code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(old->sent, IsEmpty());
}

// Somebody starts a second worker of the same name.
TEST_F(FleetTest, AProcessThatLivesIsNotReplaced) {  // F24
  const auto newer = Connect("w1", 2);
  Heartbeat(second_);
  EXPECT_FALSE(newer->closed);
  Live(absl::Seconds(1), {first_, second_});
  ASSERT_TRUE(newer->closed);
  EXPECT_EQ(newer->closed->code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(newer->closed->message()), HasSubstr("worker w1 is another process"));
  EXPECT_FALSE(second_->closed);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  // An idle one neither.
  const auto idle = Connect("w2", 1);
  const auto other = Connect("w2", 2);
  Live(absl::Seconds(1), {first_, second_, idle});
  EXPECT_FALSE(idle->closed);
  EXPECT_TRUE(other->closed);
}

// The old process died with its host: its stream lingers.
TEST_F(FleetTest, AProcessThatIsSilentIsReplacedWithinTheDetectionTime) {  // F24
  const auto newer = Connect("w1", 2);
  Live(absl::Milliseconds(2900), {first_});
  EXPECT_FALSE(newer->closed);
  EXPECT_THAT(newer->sent, IsEmpty());
  Live(absl::Milliseconds(600), {first_});
  EXPECT_EQ(newer->Kinds().front(), "welcome");
  EXPECT_EQ(Worker("w1").incarnation, Incarnation(2));
  EXPECT_TRUE(Worker("w1").alive);
  EXPECT_THAT(Job(job_).reason, HasSubstr("lease lapsed"));
}

TEST_F(FleetTest, AProcessWhoseStreamBreaksIsReplaced) {  // F24
  const auto newer = Connect("w1", 2);
  Advance(absl::Milliseconds(100));
  Disconnect(second_);
  Advance(absl::Milliseconds(451));
  EXPECT_EQ(newer->Kinds().front(), "welcome");
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
}

TEST_F(FleetTest, ANewProcessWaitsForTheSignalThatEndedTheOldOne) {  // F21, F31, F54
  Report(first_, 2, StepReportOf(job_, 0, 17, 2.5));
  Restart();
  const auto newer = Connect("w1", 2);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Advance(absl::Milliseconds(400));
  ReportExit("w1", 1, SIGKILL);
  EXPECT_EQ(Job(job_).reason,
            "rank 1 on worker w1 was lost after step 17: killed by signal 9 (SIGKILL)");
  EXPECT_EQ(newer->Kinds().front(), "welcome");
}

TEST_F(FleetTest, ANewProcessWhosePredecessorNobodyReportsTakesItsPlace) {
  Report(first_, 2, StepReportOf(job_, 0, 17, 2.5));
  Restart();
  const auto newer = Connect("w1", 2);
  Advance(absl::Milliseconds(501));
  EXPECT_EQ(Job(job_).reason,
            "rank 1 on worker w1 was lost after step 17: a new process took the worker's place");
  EXPECT_EQ(Worker("w1").incarnation, Incarnation(2));
}

TEST_F(FleetTest, AnExitBySomethingThatIsNoSignalIsIgnored) {  // F55
  for (const int signal : {-1, 65, 1 << 30}) ReportExit("w1", 1, signal);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(FleetTest, AHelloWithUnprintableOrEndlessTextIsRefused) {  // F55
  const auto refused = [&](auto change) {
    v1::Hello hello = HelloOf("x", 1);
    change(hello);
    const auto link = Connect(hello);
    return link->closed && link->closed->code() == absl::StatusCode::kInvalidArgument;
  };
  const std::string endless(257, 'x');
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_worker_id(endless); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_worker_id("a\nb"); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_device(endless); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_host("a\x1b[31m"); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_shared_memory_domain(endless); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_data_address(endless); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_network_address(endless); }));
  EXPECT_TRUE(
      refused([&](v1::Hello& hello) { hello.set_numerics_fingerprint(std::string(1025, 'x')); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_host("a\xC2\x9B[31m"); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.set_output_root(std::string(4097, '/')); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.mutable_gpu()->set_id(endless); }));
  EXPECT_TRUE(refused([&](v1::Hello& hello) { hello.mutable_gpu()->set_address("a\nb"); }));
  EXPECT_FALSE(refused([&](v1::Hello& hello) { hello.set_host("höst"); }));
}

TEST_F(FleetTest, TheGpuOfAWorkerIsKnown) {
  v1::Hello hello = HelloOf("x", 1);
  hello.mutable_gpu()->set_id("GPU-a");
  hello.mutable_gpu()->set_nccl_version(22809);
  hello.mutable_gpu()->set_address("tcp:127.0.0.1:1");
  Connect(hello);
  EXPECT_EQ(Worker("x").gpu.SerializeAsString(), hello.gpu().SerializeAsString());
  EXPECT_TRUE(Worker("w1").gpu.id().empty());
}

// As after a restart of the coordinator: an address alone is no GPU.
TEST_F(FleetTest, AGpuWithoutAnIdIsNone) {
  v1::Hello hello = HelloOf("x", 1);
  hello.mutable_gpu()->set_nccl_version(22809);
  hello.mutable_gpu()->set_address("tcp:127.0.0.1:1");
  Connect(hello);
  EXPECT_EQ(Worker("x").gpu.SerializeAsString(), "");
}

TEST_F(FleetTest, AHelloWithoutNameOrIncarnationIsRefused) {  // F55
  EXPECT_EQ(Connect("", 1)->closed->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Connect("x", 0)->closed->code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FleetTest, AnAbortThatABrokenStreamLostIsSentAgain) {
  Disconnect(second_);
  Report(first_, 2, FailedReport(job_, 0, "no memory", -1));
  const auto again = Connect(HelloWithRank("w1", 1));
  EXPECT_THAT(again->Kinds(), ElementsAre("welcome", "abort"));
}

TEST_F(FleetTest, ARestartedCoordinatorKeepsRanksOfWorkersThatComeBack) {  // F31
  Report(first_, 2, StepReportOf(job_, 0, 5, 2.75));
  const std::string before = Describe(controller_->state());
  Restart();
  EXPECT_EQ(Describe(controller_->state()), before);
  Advance(absl::Milliseconds(2500));
  const auto first = Connect(HelloWithRank("w0", 0));
  const auto second = Connect(HelloWithRank("w1", 1));
  EXPECT_EQ(first->sent[0].acknowledged(), 2u);
  Live(absl::Seconds(5), {first, second});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job(job_).epoch, Epoch(1));
  // What was sent twice because its acknowledgement was lost still counts once.
  const size_t entries = Feed(job_).size();
  Report(first, 2, StepReportOf(job_, 0, 5, 2.75));
  EXPECT_THAT(Feed(job_), SizeIs(entries));
}

TEST_F(FleetTest, AfterARestartAFullLeaseMustPassBeforeAWorkerIsMissed) {
  Restart();
  Advance(absl::Milliseconds(2900));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  const auto first = Connect(HelloWithRank("w0", 0));
  Live(absl::Milliseconds(600), {first});
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("rank 1 on worker w1"));
}

TEST_F(FleetTest, ARestartDuringAnAbortStillWaitsForItsEnd) {  // F33
  Report(first_, 2, FailedReport(job_, 0, "no memory", -1));
  Report(first_, 3, ReleasedReport(job_, 0));
  Restart();
  const auto second = Connect(HelloWithRank("w1", 1));
  EXPECT_THAT(second->Kinds(), ElementsAre("welcome", "abort"));
  Live(absl::Seconds(11), {second});
  EXPECT_FALSE(Worker("w1").alive);
}

TEST_F(FleetTest, AThawedWorkerIsToldToLeaveAndThenIsIdle) {  // F24
  Live(absl::Seconds(4), {first_});
  ASSERT_FALSE(Worker("w1").alive);
  const auto thawed = Connect(HelloWithRank("w1", 1));
  EXPECT_THAT(thawed->Kinds(), ElementsAre("welcome", "abort"));
  Report(thawed, 2, ReleasedReport(job_, 1));
  EXPECT_TRUE(Worker("w1").alive);
  EXPECT_FALSE(Worker("w1").seat);
}

TEST_F(FleetTest, AJobsOwnFailureDetectionGoesBeforeTheCoordinators) {  // F38
  const auto third = Connect("w2");
  v1::SubmitRequest request = RequestOf("patient", 1);
  request.mutable_spec()->mutable_elastic()->set_failure_detection_ms(9000);
  controller_->jobs().Submit(request, [](absl::StatusOr<v1::SubmitResponse>) {});
  EndTurn();
  v1::SessionRequest answer;
  answer.mutable_inspection()->set_request_id(first_->sent.back().inspect_data().request_id());
  controller_->fleet().Receive(first_.get(), answer);
  EndTurn();
  ASSERT_TRUE(Worker("w2").seat);
  Heartbeat(third);
  Live(absl::Seconds(8), {first_, second_});
  EXPECT_TRUE(Worker("w2").alive);
  Live(absl::Seconds(2), {first_, second_});
  EXPECT_FALSE(Worker("w2").alive);
}

}  // namespace
}  // namespace sherd
