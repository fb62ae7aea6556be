#include "client/progress.h"

#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sherd {
namespace {

v1::JobEvent StateEvent(v1::JobState state, const std::string& reason) {
  v1::JobEvent event;
  event.mutable_state()->set_state(state);
  event.mutable_state()->set_reason(reason);
  return event;
}

v1::JobEvent DoneEvent(v1::JobState state, const std::string& reason) {
  v1::JobEvent event;
  event.mutable_done()->set_state(state);
  event.mutable_done()->set_reason(reason);
  return event;
}

TEST(Progress, SaysOnceHowAJobEnded) {
  for (const v1::JobState end : {v1::JOB_STATE_CANCELLED, v1::JOB_STATE_FAILED}) {
    std::ostringstream out, chatter;
    Progress progress({OutputFormat::kTable, false, 20}, out, chatter);
    progress.Show(StateEvent(end, "by a user"));
    progress.Show(DoneEvent(end, "by a user"));
    progress.Finish();
    const std::string said = chatter.str();
    EXPECT_EQ(said.find("by a user"), said.rfind("by a user")) << said;
    EXPECT_NE(said.find("by a user"), std::string::npos);
  }
}

TEST(Progress, SaysThatAJobSucceeded) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, false, 20}, out, chatter);
  progress.Show(StateEvent(v1::JOB_STATE_SUCCEEDED, ""));
  progress.Show(DoneEvent(v1::JOB_STATE_SUCCEEDED, ""));
  progress.Finish();
  EXPECT_EQ(chatter.str(), "SUCCEEDED\n");
}

TEST(Progress, TellsWhatARecoveryCostAndWhatWasLost) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, false, 20}, out, chatter);
  v1::JobEvent event;
  event.mutable_epoch()->set_epoch(2);
  event.mutable_epoch()->set_world(3);
  event.mutable_epoch()->set_resumed_step(17);
  event.mutable_epoch()->set_reason("rank 1 on worker w1 was lost");
  (*event.mutable_epoch()->mutable_recovery_seconds())["restore"] = 0.5;
  (*event.mutable_epoch()->mutable_recovery_seconds())["detect"] = 3;
  progress.Show(event);
  event.mutable_rollback()->set_from_step(17);
  event.mutable_rollback()->set_to_step(10);
  event.mutable_rollback()->set_reason("too much was lost at once");
  progress.Show(event);
  event.mutable_warning()->set_kind("straggler");
  event.mutable_warning()->set_rank(2);
  event.mutable_warning()->set_text("it is slow");
  progress.Show(event);
  event.mutable_checkpoint()->set_step(20);
  event.mutable_checkpoint()->set_path("out/tiny/step-20");
  event.mutable_checkpoint()->set_bytes(2048);
  event.mutable_checkpoint()->set_seconds(0.25);
  progress.Show(event);
  event.mutable_checkpoint()->set_error("the disk is full");
  progress.Show(event);
  EXPECT_EQ(chatter.str(),
            "epoch 2 with 3 workers goes on after step 17; recovered in 3.50 s (detect 3.00, "
            "restore 0.50): rank 1 on worker w1 was lost\n"
            "back from step 17 to step 10, the steps behind it come again: too much was lost at "
            "once\n"
            "warning (straggler, rank 2): it is slow\n"
            "step 20 is saved in out/tiny/step-20 (2.0 KiB in 0.25 s)\n"
            "step 20 could not be saved as a checkpoint: the disk is full; training goes on\n");
}

v1::JobEvent StepEvent(int64_t step, double step_ms) {
  v1::JobEvent event;
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_step_ms(step_ms);
  event.mutable_step()->set_loss(static_cast<double>(step));
  return event;
}

v1::JobEvent RollbackEvent(int64_t from, int64_t to) {
  v1::JobEvent event;
  event.mutable_rollback()->set_from_step(from);
  event.mutable_rollback()->set_to_step(to);
  return event;
}

TEST(Progress, StepsThatWereLostAreShownAgainAndNotAsTheLastOnes) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, false, 20}, out, chatter);
  for (int64_t step = 1; step <= 3; ++step) progress.Show(StepEvent(step, 100));
  progress.Show(RollbackEvent(3, 1));
  for (int64_t step = 2; step <= 4; ++step) progress.Show(StepEvent(step, 100));
  std::istringstream lines(out.str());
  std::vector<std::string> steps;
  for (std::string line; std::getline(lines, line);) steps.push_back(line.substr(0, 8));
  EXPECT_EQ(steps.size(), 6u) << out.str();
  EXPECT_EQ(steps[1], steps[3]);
}

TEST(Progress, AJobThatEndsBehindARollbackIsNotShownAtAStepThatWasLost) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, true, 20}, out, chatter);
  for (int64_t step = 1; step <= 3; ++step) progress.Show(StepEvent(step, 100));
  progress.Show(RollbackEvent(3, 1));
  progress.Show(DoneEvent(v1::JOB_STATE_CANCELLED, "by a user"));
  progress.Finish();
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace sherd
