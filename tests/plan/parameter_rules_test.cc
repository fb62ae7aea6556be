#include "plan/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec ValidSpec(const char* preset = "gpt2-bytes") {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_model()->set_preset(preset);
  spec.mutable_data()->add_train("corpus.txt");
  spec.mutable_train()->set_steps(10);
  return spec;
}

std::vector<std::string> Violations(const v1::JobSpec& spec) {
  std::vector<std::string> violations;
  const v1::InvalidFields invalid = ValidateJobSpec(NormalizeJobSpec(spec));
  for (const v1::InvalidField& field : invalid.fields()) {
    violations.push_back(absl::StrCat(field.field(), ": ", field.description()));
  }
  return violations;
}

v1::ParameterGroup& AddGroup(v1::JobSpec& spec, const std::string& pattern) {
  v1::ParameterGroup& group = *spec.mutable_train()->mutable_optimizer()->add_groups();
  group.set_parameters(pattern);
  return group;
}

TEST(ParameterRules, TakePatternsThatMatch) {
  v1::JobSpec spec = ValidSpec();
  AddGroup(spec, "*.bias").set_weight_decay(0);
  AddGroup(spec, "h.5.*").set_lr_scale(0.5);
  spec.mutable_train()->add_freeze("wte.*");
  EXPECT_THAT(Violations(spec), IsEmpty());
  v1::JobSpec llama = ValidSpec("llama-15m");
  AddGroup(llama, "model.layers.*.mlp.*").set_weight_decay(0.2);
  llama.mutable_train()->add_freeze("model.embed_tokens.weight");
  EXPECT_THAT(Violations(llama), IsEmpty());
}

// F55
TEST(ParameterRules, NameTheNearestParametersOfAPatternWithout) {
  v1::JobSpec spec = ValidSpec();
  AddGroup(spec, "h.*.atn.c_attn.*").set_weight_decay(0);
  spec.mutable_train()->add_freeze("h.6.ln_1.bias");
  spec.mutable_train()->add_freeze("lm_head.weight");  // the head is tied
  EXPECT_THAT(
      Violations(spec),
      ElementsAre(
          "train.optimizer.groups[0].parameters: 'h.*.atn.c_attn.*' matches no parameter of the "
          "model; the nearest names are h.0.attn.c_attn.weight, h.0.attn.c_attn.bias, "
          "h.5.attn.c_attn.weight",
          "train.freeze[0]: 'h.6.ln_1.bias' matches no parameter of the model; the nearest names "
          "are h.0.ln_1.bias, h.5.ln_1.bias",
          HasSubstr("train.freeze[1]: 'lm_head.weight' matches no parameter of the model; the "
                    "nearest name")));
}

TEST(ParameterRules, RefuseValuesOutOfRange) {
  v1::JobSpec spec = ValidSpec();
  AddGroup(spec, "*").set_weight_decay(-1);
  AddGroup(spec, "*").set_lr_scale(0);
  AddGroup(spec, "*").set_lr_scale(std::numeric_limits<double>::infinity());
  AddGroup(spec, "").set_lr_scale(1);
  spec.mutable_train()->add_freeze("a\nb");
  EXPECT_THAT(
      Violations(spec),
      ElementsAre(
          "train.optimizer.groups[0].weight_decay: -1 is not valid; it must be 0 or above, "
          "as in 0.1",
          "train.optimizer.groups[1].lr_scale: 0 is not valid; it must be a number above 0, "
          "as in 0.5; what is not to be trained is named in train.freeze",
          HasSubstr("train.optimizer.groups[2].lr_scale: inf is not valid"),
          HasSubstr("train.optimizer.groups[3].parameters: must be a pattern of 1 to 100 "),
          HasSubstr("train.freeze[0]: must be a pattern of 1 to 100 characters")));
}

TEST(ParameterRules, RefuseToFreezeEverything) {
  v1::JobSpec spec = ValidSpec();
  for (const char* const pattern : {"w*", "h.*", "ln_f.*"})
    spec.mutable_train()->add_freeze(pattern);
  EXPECT_THAT(Violations(spec),
              ElementsAre("train.freeze: freezes every parameter, which leaves nothing to train; "
                          "leave out ln_f.bias, for example"));
  spec.mutable_train()->set_freeze(2, "ln_f.bias");
  EXPECT_THAT(Violations(spec), IsEmpty());
}

TEST(ParameterRules, BoundTheNumberOfPatterns) {
  v1::JobSpec spec = ValidSpec();
  for (int i = 0; i <= 100; ++i) {
    AddGroup(spec, "*");
    spec.mutable_train()->add_freeze("wte.*");
  }
  EXPECT_THAT(Violations(spec),
              ElementsAre("train.optimizer.groups: lists 101 patterns; at most 100 are allowed",
                          "train.freeze: lists 101 patterns; at most 100 are allowed"));
}

// A model that is wrong has no names, so that nothing more is said of patterns.
TEST(ParameterRules, SayNothingOfPatternsForAWrongModel) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_model()->set_heads(5);
  spec.mutable_train()->add_freeze("nothing");
  EXPECT_THAT(Violations(spec), ElementsAre(HasSubstr("model.heads")));
}

TEST(ScheduleRules, WsdDecaysOverATenthOfTheSteps) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->set_steps(250);
  spec.mutable_train()->mutable_schedule()->set_kind(v1::SCHEDULE_KIND_WSD);
  EXPECT_EQ(NormalizeJobSpec(spec).train().schedule().decay(), 25);
  spec.mutable_train()->mutable_schedule()->set_warmup(240);
  EXPECT_EQ(NormalizeJobSpec(spec).train().schedule().decay(), 10);
  spec.mutable_train()->set_steps(3);
  spec.mutable_train()->mutable_schedule()->set_warmup(0);
  EXPECT_EQ(NormalizeJobSpec(spec).train().schedule().decay(), 1);
  EXPECT_THAT(Violations(spec), IsEmpty());
}

TEST(ScheduleRules, ADecayFitsBehindWarmUpAndIsOfWsdAlone) {
  v1::JobSpec spec = ValidSpec();
  v1::ScheduleSpec& schedule = *spec.mutable_train()->mutable_schedule();
  schedule.set_decay(4);
  EXPECT_THAT(Violations(spec),
              ElementsAre("train.schedule.decay: is of the schedule 'wsd' alone; leave it out, or "
                          "let train.schedule.kind be 'wsd'"));
  schedule.set_kind(v1::SCHEDULE_KIND_WSD);
  schedule.set_warmup(7);
  EXPECT_THAT(Violations(spec), ElementsAre("train.schedule.decay: 4 is out of range; the nearest "
                                            "valid value is 3 (1 to 3)"));
  schedule.set_warmup(10);
  EXPECT_THAT(Violations(spec),
              ElementsAre("train.schedule.warmup: leaves no step for the decay of the schedule "
                          "'wsd'; the nearest valid value is 9"));
}

TEST(ObjectiveRules, BoundZLossAndLabelSmoothing) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_train()->set_z_loss(-1e-4);
  spec.mutable_train()->set_label_smoothing(1);
  EXPECT_THAT(Violations(spec),
              ElementsAre("train.z_loss: -0.0001 is not valid; it must be from 0 (off) to 1, as in "
                          "1e-4",
                          "train.label_smoothing: 1 is not valid; it must be at least 0 (off) and "
                          "below 1, as in 0.1"));
}

}  // namespace
}  // namespace sherd
