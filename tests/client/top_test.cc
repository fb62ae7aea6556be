// What `sherd top` shows of a moment.

#include <string>

#include "client/render_top.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Job Parse(const char* text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

Cluster Moment() {
  Cluster cluster;
  cluster.jobs.push_back(
      Parse("id: 'job-2' name: 'tiny' state: JOB_STATE_RUNNING step: 40 loss: 2.5 "
            "spec { train { steps: 100 } } "
            "last_step { step: 40 tokens_per_second: 12345.6 step_ms: 500 } "
            "last_epoch { epoch: 3 recovery_seconds { key: 'detect' value: 0.25 } "
            "             recovery_seconds { key: 'restore' value: 0.5 } } "
            "ranks { rank: 0 worker_id: 'a' status: 'running' "
            "        peak { predicted: 2048 measured: 2048 } } "
            "ranks { rank: 1 worker_id: 'b' status: 'running' "
            "        peak { predicted: 4096 measured: 3072 } }"));
  cluster.jobs.push_back(
      Parse("id: 'job-1' name: 'old' state: JOB_STATE_FAILED step: 0 "
            "ended_unix_ms: 5 ranks { rank: 0 worker_id: 'gone' }"));
  for (const char* status : {"busy", "busy", "idle"}) {
    cluster.workers.emplace_back().set_status(status);
  }
  return cluster;
}

TEST(Top, ShowsSpeedMemoryAndRecoveryOfJobs) {
  const std::string text = TopText(Moment());
  EXPECT_THAT(text, HasSubstr("3 workers: 2 busy, 1 idle\n"));
  EXPECT_THAT(text, HasSubstr("job-2  tiny  RUNNING  40/100  2.5000    12,346      500      2  "
                              "3.0 KiB  0.75s, epoch 3  30s\n"));
  EXPECT_THAT(text, HasSubstr("job-1  old   FAILED        0       -         -        -      1"));
}

TEST(Top, ShowsTheRanksOfJobsThatHaveNotEnded) {
  const std::string text = TopText(Moment());
  EXPECT_THAT(text, HasSubstr("job-2     1  b       running  3.0 KiB    4.0 KiB  -\n"));
  EXPECT_THAT(text, Not(HasSubstr("gone")));
}

TEST(Top, TellsMachinesTheSame) {
  const Json json = TopJson(Moment());
  EXPECT_EQ(json["workers"].dump(), R"({"busy":2,"idle":1})");
  EXPECT_EQ(json["jobs"][0]["ranks"][1]["peak"].dump(), R"({"predicted":4096,"measured":3072})");
  EXPECT_EQ(json["jobs"][0]["last_step"]["step_ms"], 500);
  EXPECT_EQ(json["jobs"][0]["last_epoch"]["recovery_seconds"]["restore"], 0.5);
  EXPECT_FALSE(json["jobs"][0]["last_step"].contains("event"));
}

TEST(Top, IsQuietAboutWhatThereIsNot) {
  EXPECT_EQ(TopText({}).substr(0, 12), "0 workers\n\nJ");
  EXPECT_THAT(TopText({}), Not(HasSubstr("RANK ")));
}

}  // namespace
}  // namespace sherd
