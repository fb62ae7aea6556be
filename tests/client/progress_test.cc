#include "client/progress.h"

#include <sstream>

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

}  // namespace
}  // namespace sherd
