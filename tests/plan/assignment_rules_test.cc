#include "plan/assignment_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

v1::Assignment Sound() {
  v1::Assignment assignment;
  assignment.set_job_id("job-1");
  assignment.set_epoch(2);
  assignment.set_rank(1);
  assignment.set_world(4);
  assignment.set_ranks_on_host(2);
  *assignment.mutable_spec() = testing::MakeJob("zero3", v1::DATA_TYPE_FP32, 4);
  v1::RestorePlan& restore = *assignment.mutable_restore();
  restore.set_epoch(1);
  restore.set_world(3);
  restore.set_step(5);
  restore.add_sources()->set_owner(2);
  return assignment;
}

std::string Problem(void (*change)(v1::Assignment&)) {
  v1::Assignment assignment = Sound();
  change(assignment);
  const absl::Status status = CheckAssignment(assignment);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(AssignmentRules, WhatTheCoordinatorSendsIsTaken) {
  EXPECT_EQ(Problem([](v1::Assignment&) {}), "");
  EXPECT_EQ(Problem([](v1::Assignment& a) { a.clear_restore(); }), "");
  EXPECT_EQ(Problem([](v1::Assignment& a) { a.mutable_trial()->set_steps(3); }), "");
  // Nothing is laid out by a probe, nor by a restored checkpoint.
  EXPECT_EQ(Problem([](v1::Assignment& a) {
              testing::SetStrategy("hybrid 2", *a.mutable_spec());
              a.set_world(3);
              a.mutable_trial();
              a.clear_restore();
            }),
            "");
  EXPECT_EQ(Problem([](v1::Assignment& a) {
              a.mutable_restore()->Clear();
              a.mutable_restore()->set_checkpoint("out/step-5");
            }),
            "");
}

TEST(AssignmentRules, ARankIsOneOfItsWorld) {
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.clear_job_id(); }), HasSubstr("names no job"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.set_epoch(0); }), HasSubstr("epoch 0"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.set_world(0); }), HasSubstr("world of 0"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.set_world(1 << 17); }), HasSubstr("131072"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.set_rank(4); }), HasSubstr("rank 4 of a world"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.set_rank(-1); }), HasSubstr("rank -1"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.set_ranks_on_host(5); }), HasSubstr("5 ranks"));
}

TEST(AssignmentRules, AJobIsOneThatItsWorldCanTrain) {
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.mutable_spec()->mutable_model()->set_heads(3); }),
              HasSubstr("job that is not valid: model."));
  EXPECT_THAT(Problem([](v1::Assignment& a) {
                a.mutable_spec()->mutable_model()->set_from("gpt2");
                a.mutable_spec()->mutable_model()->set_layers(0);
              }),
              HasSubstr("shape was not looked up"));
  EXPECT_THAT(Problem([](v1::Assignment& a) {
                a.mutable_spec()->mutable_parallel()->set_strategy(v1::STRATEGY_AUTO);
              }),
              HasSubstr("strategy that nobody executes"));
  EXPECT_THAT(Problem([](v1::Assignment& a) {
                testing::SetStrategy("hybrid 2", *a.mutable_spec());
                a.set_world(3);
              }),
              HasSubstr("world of 3, which is no multiple of 2"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.mutable_trial()->set_steps(-1); }),
              HasSubstr("tries -1 steps"));
}

TEST(AssignmentRules, AVersionIsOfAWorldThatItsLayoutAllows) {
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.mutable_restore()->set_step(-1); }),
              HasSubstr("restores step -1"));
  EXPECT_THAT(Problem([](v1::Assignment& a) { a.mutable_restore()->set_world(0); }),
              HasSubstr("a world of 0"));
  EXPECT_THAT(
      Problem([](v1::Assignment& a) { a.mutable_restore()->mutable_sources(0)->set_owner(3); }),
      HasSubstr("rank 3 of a world of 3"));
  EXPECT_THAT(Problem([](v1::Assignment& a) {
                *a.mutable_restore()->mutable_parallel() = a.spec().parallel();
                a.mutable_restore()->mutable_parallel()->set_tensor(5);
              }),
              HasSubstr("parallel.tensor"));
  EXPECT_THAT(Problem([](v1::Assignment& a) {
                *a.mutable_restore()->mutable_parallel() = a.spec().parallel();
                a.mutable_restore()->mutable_parallel()->set_tensor(2);
              }),
              HasSubstr("world of 3, which is no multiple of 2"));
  EXPECT_THAT(Problem([](v1::Assignment& a) {
                *a.mutable_restore()->mutable_parallel() = a.spec().parallel();
                a.mutable_restore()->mutable_parallel()->set_tensor(2);
                a.mutable_restore()->set_world(4);
              }),
              HasSubstr("tensor-parallel groups of 2 ranks in such of 1"));
}

}  // namespace
}  // namespace sherd
