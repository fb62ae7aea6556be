// How a job of strategy auto and its decision are shown.

#include "client/render_decision.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/event_sentences.h"
#include "client/job_file.h"
#include "client/render_json.h"
#include "client/render_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/candidates.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] =
    "name: open\n"
    "model: {preset: gpt2-bytes}\n"
    "data: {train: [text.txt]}\n"
    "train: {steps: 10}\n";

v1::JobSpec Read(const std::string& text) {
  const absl::StatusOr<JobFile> file = ParseJobFile(text, "job.yaml", {});
  EXPECT_TRUE(file.ok()) << file.status();
  return NormalizeJobSpec(file->spec);
}

v1::Candidate MakeCandidate(v1::Strategy strategy, double measured) {
  v1::JobSpec spec = Read(kJob);
  spec.mutable_parallel()->set_strategy(strategy);
  spec.mutable_parallel()->set_shard_group(strategy == v1::STRATEGY_HYBRID ? 2 : 0);
  v1::Candidate candidate;
  *candidate.mutable_parallel() = spec.parallel();
  candidate.set_micro_batch(8);
  candidate.set_peak_bytes(3 << 20);
  candidate.set_fits(true);
  candidate.set_predicted_step_seconds(0.02);
  candidate.set_measured_step_seconds(measured);
  return candidate;
}

v1::StrategyDecision MakeDecision() {
  v1::StrategyDecision decision;
  decision.set_world(4);
  *decision.add_candidates() = MakeCandidate(v1::STRATEGY_DDP, 0);
  *decision.add_candidates() = MakeCandidate(v1::STRATEGY_ZERO2, 0.025);
  decision.mutable_candidates(0)->set_fits(false);
  *decision.mutable_chosen() = decision.candidates(1);
  decision.set_reason("the fastest");
  decision.mutable_probe()->set_matmul_flops_per_second(5e10);
  return decision;
}

TEST(AutoSpecification, ReadsBackAsTheSameWithWhatItLeavesOpen) {
  const v1::JobSpec spec = Read(absl::StrCat(kJob, "parallel: {strategy: auto}\n"));
  EXPECT_EQ(spec.train().micro_batch(), 0);
  const std::string text = ToYaml(SpecJson(spec));
  EXPECT_THAT(text, Not(HasSubstr("micro_batch")));
  EXPECT_THAT(text, Not(HasSubstr("tensor")));
  EXPECT_EQ(Read(text).DebugString(), spec.DebugString());
}

TEST(AutoSpecification, ShardGroupsAreChosenAndNotGiven) {
  const absl::StatusOr<JobFile> file = ParseJobFile(
      absl::StrCat(kJob, "parallel: {strategy: auto, shard_group: 2}\n"), "job.yaml", {});
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(CheckJobFile(*file).message()),
              HasSubstr("job.yaml:5: parallel.shard_group: 2 is for parallel.strategy: hybrid; "
                        "'auto' takes 0"));
}

TEST(Decision, ItsKeysAreThoseOfAJobFileOfTheSameLayout) {
  for (const v1::Strategy strategy : {v1::STRATEGY_DDP, v1::STRATEGY_ZERO1, v1::STRATEGY_ZERO2,
                                      v1::STRATEGY_ZERO3, v1::STRATEGY_HYBRID}) {
    v1::Candidate candidate = MakeCandidate(strategy, 0);
    candidate.mutable_parallel()->set_recompute(v1::RECOMPUTE_BLOCK);
    candidate.mutable_parallel()->set_tensor(2);
    candidate.mutable_parallel()->set_sequence_parallel(true);
    // The key `train` is there already.
    std::string text = KeysText(candidate);
    const size_t train = text.find("train: {");
    ASSERT_NE(train, std::string::npos);
    text = absl::StrCat("name: open\nmodel: {preset: gpt2-bytes}\ndata: {train: [text.txt]}\n",
                        text.substr(0, train), "train: {steps: 10, ", text.substr(train + 8));
    const v1::JobSpec pinned = Read(text);
    EXPECT_EQ(pinned.DebugString(), WithCandidate(Read(kJob), candidate).DebugString()) << text;
  }
}

TEST(Decision, TellsItsFiguresInJson) {
  const Json json = DecisionJson(MakeDecision());
  EXPECT_EQ(json["event"], "decision");
  EXPECT_EQ(json["world"], 4);
  EXPECT_EQ(json["reason"], "the fastest");
  EXPECT_EQ(json["chosen"]["name"], "zero2, micro_batch 8");
  EXPECT_EQ(json["keys"]["parallel"]["strategy"], "zero2");
  EXPECT_EQ(json["keys"]["train"]["micro_batch"], 8);
  ASSERT_EQ(json["candidates"].size(), 2u);
  EXPECT_EQ(json["candidates"][0]["fits"], false);
  EXPECT_TRUE(json["candidates"][0]["measured_step_seconds"].is_null());
  EXPECT_EQ(json["candidates"][1]["measured_step_seconds"], 0.025);
  EXPECT_EQ(json["candidates"][1]["peak_bytes"], 3 << 20);
  EXPECT_EQ(json["probe"]["matmul_flops_per_second"], 5e10);
  v1::JobEvent event;
  *event.mutable_decision() = MakeDecision();
  EXPECT_EQ(EventJson(event), json);
}

TEST(Decision, IsATableForPeople) {
  EXPECT_EQ(DecisionText(MakeDecision()),
            "strategy auto on 4 workers is zero2, micro_batch 8: the fastest\n"
            "candidate                             peak  predicted  measured\n"
            "zero2, micro_batch 8               3.0 MiB    20.0 ms   25.0 ms\n"
            "ddp, micro_batch 8    3.0 MiB does not fit    20.0 ms         -\n"
            "as keys of a job file:\n"
            "parallel: {strategy: zero2, tensor: 1, recompute: none}\n"
            "train: {micro_batch: 8}");
  EXPECT_THAT(CandidatesTable({MakeDecision().candidates(0), MakeDecision().candidates(1)}, 1),
              HasSubstr("and 1 more\n"));
}

TEST(Decision, ATableOfPredictionsAloneHasNoColumnForFigures) {
  EXPECT_EQ(CandidatesTable({MakeDecision().candidates(0)}, 1),
            "candidate                           peak  predicted\n"
            "ddp, micro_batch 8  3.0 MiB does not fit    20.0 ms\n");
}

TEST(Decision, IsASentenceAmongOtherEvents) {
  v1::JobEvent event;
  *event.mutable_decision() = MakeDecision();
  EXPECT_EQ(EventSentence(event, 10),
            "strategy auto on 4 workers is zero2, micro_batch 8: the fastest");
}

// What is left of a job is not known of a step of its past.
TEST(EventSentences, OnlyAStepThatIsFollowedTellsWhatIsLeft) {
  v1::JobEvent event;
  event.mutable_step()->set_step(3);
  EXPECT_THAT(StepLine(event.step(), 20, absl::Seconds(17)), HasSubstr("  ETA 17s"));
  EXPECT_THAT(EventSentence(event, 20), testing::Not(HasSubstr("ETA")));
}

}  // namespace
}  // namespace sherd
