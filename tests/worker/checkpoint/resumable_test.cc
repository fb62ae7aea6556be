#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "google/protobuf/util/message_differencer.h"
#include "plan/job_spec.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "tests/worker/checkpoint/training_world.h"
#include "worker/checkpoint/check_resumable.h"
#include "worker/checkpoint/training_json.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kCorpusTokens = 4321;

std::string ErrorOf(const std::function<void(v1::JobSpec&)>& change,
                    int64_t corpus_tokens = kCorpusTokens,
                    v1::Architecture arch = v1::ARCHITECTURE_GPT2) {
  v1::JobSpec job = SmallJob(arch, true);
  const CheckpointInfo info = TrainingInfoOf(job, 10);
  change(job);
  return CheckResumable(info, job, corpus_tokens).ToString();
}

// F48: what the order of samples depends on is the same, or the job does not start.
TEST(CheckResumable, NamesEveryKeyThatChangesTheOrderOfSamples) {
  EXPECT_EQ(ErrorOf([](v1::JobSpec&) {}), "OK");
  EXPECT_THAT(ErrorOf([](v1::JobSpec& job) {
                job.mutable_train()->set_seed(8);
                job.mutable_train()->set_global_batch(24);
                job.mutable_train()->set_seq_len(2);
              }),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("train.seed was 7 and is 8"),
                    HasSubstr("train.global_batch was 12 and is 24"),
                    HasSubstr("train.seq_len was 3 and is 2")));
  EXPECT_THAT(ErrorOf([](v1::JobSpec&) {}, 5000),
              HasSubstr("data.train had 4321 tokens and has 5000"));
  EXPECT_THAT(ErrorOf([](v1::JobSpec& job) { job.mutable_data()->set_tokenizer("x"); }),
              HasSubstr("data.tokenizer was bytes and is x"));
  EXPECT_THAT(ErrorOf([](v1::JobSpec& job) {
                job.mutable_data()->add_train_weights(2.5);
                job.mutable_data()->add_train_weights(1);
                job.mutable_data()->set_validation_split(0.05);
              }),
              AllOf(HasSubstr("the weighting of data.train was none and is 2.5, 1"),
                    HasSubstr("data.validation_split was 0 and is 0.05")));
  EXPECT_THAT(ErrorOf([](v1::JobSpec& job) { job.mutable_train()->set_steps(9); }),
              AllOf(HasSubstr("of step 10 and train.steps is 9; train.steps must be above 10"),
                    Not(HasSubstr("another job"))));
  EXPECT_EQ(ErrorOf([](v1::JobSpec& job) { job.mutable_train()->set_steps(10); }), "OK");
}

TEST(CheckResumable, NamesWhatIsOtherInTheModel) {
  EXPECT_THAT(ErrorOf([](v1::JobSpec& job) {
                job.mutable_model()->set_layers(2);
                job.mutable_model()->set_tie_embeddings(false);
              }),
              AllOf(HasSubstr("model.layers was 1 and is 2"),
                    HasSubstr("model.tie_embeddings was true and is false")));
  EXPECT_THAT(ErrorOf([](v1::JobSpec& job) { job = SmallJob(v1::ARCHITECTURE_LLAMA, true); }),
              HasSubstr("model.arch was \"gpt2\" and is \"llama\""));
  EXPECT_THAT(ErrorOf(
                  [](v1::JobSpec& job) {
                    job.mutable_model()->set_rope_theta(5);
                    job.mutable_model()->mutable_rope_scaling()->set_factor(2);
                    job = NormalizeJobSpec(job);
                  },
                  kCorpusTokens, v1::ARCHITECTURE_LLAMA),
              AllOf(HasSubstr("model.rope_theta was 10000.0 and is 5.0"),
                    HasSubstr("model.rope_scaling.factor was 1.0 and is 2.0")));
}

TEST(CheckResumable, LetsLayoutsAndSchedulesChangeAndTellsOfTheLatter) {
  v1::JobSpec job = SmallJob(v1::ARCHITECTURE_GPT2, true);
  const CheckpointInfo info = TrainingInfoOf(job, 10);
  EXPECT_THAT(ChangedSettings(info, job), IsEmpty());
  job.mutable_parallel()->set_strategy(v1::STRATEGY_DDP);
  job.mutable_parallel()->set_tensor(2);
  EXPECT_THAT(ChangedSettings(info, job), IsEmpty());
  job.mutable_train()->set_steps(2000);
  job.mutable_train()->mutable_optimizer()->set_lr(0.5);
  job.mutable_train()->mutable_schedule()->set_kind(v1::SCHEDULE_KIND_CONSTANT);
  EXPECT_TRUE(CheckResumable(info, job, kCorpusTokens).ok());
  EXPECT_THAT(
      ChangedSettings(info, job),
      ElementsAre("train.steps was 1000 and is 2000", "train.optimizer.lr was 0.0003 and is 0.5",
                  "train.schedule.kind was cosine and is constant"));
}

TEST(CheckResumable, TellsWhatElseIsTrainedForAndHow) {
  v1::JobSpec job = SmallJob(v1::ARCHITECTURE_GPT2, true);
  job.mutable_train()->add_freeze("wpe.*");
  const CheckpointInfo info = TrainingInfoOf(job, 10);
  EXPECT_THAT(ChangedSettings(info, job), IsEmpty());
  v1::ParameterGroup& group = *job.mutable_train()->mutable_optimizer()->add_groups();
  group.set_parameters("*.bias");
  group.set_weight_decay(0);
  group.set_lr_scale(0.5);
  job.mutable_train()->add_freeze("h.0.*");
  job.mutable_train()->set_z_loss(1e-4);
  job.mutable_train()->set_label_smoothing(0.1);
  EXPECT_TRUE(CheckResumable(info, job, kCorpusTokens).ok());
  EXPECT_THAT(
      ChangedSettings(info, job),
      ElementsAre("train.z_loss was 0 and is 0.0001", "train.label_smoothing was 0 and is 0.1",
                  "train.optimizer.groups was [] and is [*.bias (weight_decay 0, lr_scale "
                  "0.5)]",
                  "train.freeze was [wpe.*] and is [wpe.*, h.0.*]"));
}

// F49.
TEST(CheckResumable, RefusesWeightsAlone) {
  const v1::JobSpec job = SmallJob(v1::ARCHITECTURE_GPT2, true);
  CheckpointInfo info = TrainingInfoOf(job, 10);
  info.training.reset();
  EXPECT_THAT(CheckResumable(info, job, kCorpusTokens).ToString(), HasSubstr("optimizer's state"));
}

Manifest TrainingManifest() {
  Manifest manifest = SmallManifest();
  manifest.info = TrainingInfoOf(SmallJob(v1::ARCHITECTURE_GPT2, true), 10);
  return manifest;
}

TEST(TrainingManifest, KeepsEveryFieldBitForBit) {
  Manifest manifest = TrainingManifest();
  TrainingInfo& training = *manifest.info.training;
  training.train.set_seed(std::numeric_limits<uint64_t>::max());
  training.train.mutable_optimizer()->set_beta2(0.1 + 0.2);
  training.train_weights = {0.1 + 0.2, 1};
  training.validation_split = 0.05;
  for (const double loss : {1.0 / 3, 0.0, 5e-324, std::nan("")}) {
    training.loss = loss;
    const absl::StatusOr<Manifest> back = ParseManifest(FormatManifest(manifest));
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_TRUE(back->info.training.has_value());
    const TrainingInfo& read = *back->info.training;
    EXPECT_EQ(read.lineage, "first");
    EXPECT_EQ(read.corpus_tokens, kCorpusTokens);
    EXPECT_EQ(read.tokens, 360);
    EXPECT_EQ(read.train_weights, training.train_weights);
    EXPECT_EQ(read.validation_split, 0.05);
    EXPECT_EQ(read.skipped_windows, 2);
    EXPECT_TRUE(read.loss == loss || (std::isnan(loss) && std::isnan(read.loss)));
    EXPECT_EQ(read.train.seed(), training.train.seed());
    EXPECT_EQ(read.train.optimizer().beta2(), 0.1 + 0.2);
    EXPECT_EQ(read.train.schedule().kind(), v1::SCHEDULE_KIND_COSINE);
  }
}

TEST(TrainingManifest, KeepsSettingsOfParametersAndObjective) {
  Manifest manifest = TrainingManifest();
  v1::TrainSpec& train = manifest.info.training->train;
  const auto read_back = [&] {
    const absl::StatusOr<Manifest> back = ParseManifest(FormatManifest(manifest));
    EXPECT_TRUE(back.ok()) << back.status();
    return back.ok() ? back->info.training->train : v1::TrainSpec();
  };
  EXPECT_EQ(read_back().optimizer().groups_size(), 0);
  train.set_z_loss(0.1 + 0.2);
  train.set_label_smoothing(1.0 / 3);
  train.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_WSD);
  train.mutable_schedule()->set_decay(7);
  train.add_freeze("wte.*");
  v1::ParameterGroup& group = *train.mutable_optimizer()->add_groups();
  group.set_parameters("*.bias");
  group.set_lr_scale(1.0 / 7);
  const v1::TrainSpec read = read_back();
  EXPECT_EQ(read.z_loss(), 0.1 + 0.2);
  EXPECT_EQ(read.label_smoothing(), 1.0 / 3);
  EXPECT_EQ(read.schedule().kind(), v1::SCHEDULE_KIND_WSD);
  EXPECT_EQ(read.schedule().decay(), 7);
  EXPECT_THAT(read.freeze(), ElementsAre("wte.*"));
  ASSERT_EQ(read.optimizer().groups_size(), 1);
  EXPECT_EQ(read.optimizer().groups(0).parameters(), "*.bias");
  EXPECT_FALSE(read.optimizer().groups(0).has_weight_decay());
  EXPECT_EQ(read.optimizer().groups(0).lr_scale(), 1.0 / 7);
}

// What was saved before these settings were there had none of them.
TEST(TrainingManifest, ReadsSettingsThatAreNotNamedAsUnset) {
  // As a file has it: only there are sizes known to be none below zero.
  const auto stored = [] {
    return nlohmann::json::parse(TrainingJson(*TrainingManifest().info.training).dump());
  };
  nlohmann::json json = stored();
  for (const char* const key : {"train.schedule.decay", "train.z_loss", "train.label_smoothing"}) {
    EXPECT_EQ(json["settings"].erase(key), 1u) << key;
  }
  const absl::StatusOr<TrainingInfo> read = ParseTraining(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->train.schedule().decay(), 0);
  EXPECT_EQ(read->train.z_loss(), 0);
  EXPECT_EQ(read->train.label_smoothing(), 0);
  json["settings"].erase("train.grad_clip");
  EXPECT_THAT(ParseTraining(json).status().ToString(), HasSubstr("train.grad_clip"));
  json = stored();
  json["settings"]["train.freeze"] = {1};
  EXPECT_THAT(ParseTraining(json).status().ToString(), HasSubstr("train.freeze"));
}

TEST(TrainingManifest, NamesWhatIsMissing) {
  Manifest manifest = TrainingManifest();
  EXPECT_TRUE(ParseManifest(FormatManifest(manifest)).ok());
  manifest.info.training->corpus_tokens = -1;
  EXPECT_THAT(ParseManifest(FormatManifest(manifest)).status().ToString(),
              HasSubstr("lacks a valid \"corpus_tokens\""));
  manifest = TrainingManifest();
  manifest.info.training->train.mutable_schedule()->clear_kind();
  EXPECT_THAT(ParseManifest(FormatManifest(manifest)).status().ToString(), HasSubstr("schedule"));
  manifest = TrainingManifest();
  manifest.tensors[0].pieces[0].xxh3.clear();
  EXPECT_THAT(ParseManifest(FormatManifest(manifest)).status().ToString(),
              HasSubstr("lacks a valid \"xxh3\""));
  manifest = TrainingManifest();
  manifest.tensors[0].pieces[0].xxh3.push_back(1);
  EXPECT_THAT(ParseManifest(FormatManifest(manifest)).status().ToString(),
              HasSubstr("too few or too many checksums of \"a\""));
}

}  // namespace
}  // namespace sherd
