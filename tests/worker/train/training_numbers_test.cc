// Whole trainings against the same arithmetic written out in double precision. Equal bits over
// strategies say nothing about what all of them have alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "worker/model/init.h"
#include "worker/train/rank_job.h"

namespace sherd {
namespace {

using testing::LocalWorld;
using testing::RankRecord;

constexpr int64_t kSteps = 4;
constexpr int64_t kWarmup = 3;
constexpr double kPeak = 3e-3;
constexpr double kMinimum = 1e-3;
constexpr double kClip = 0.5;
constexpr double kDecay = 0.5;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
// Large, so that what has no gradient but rounding stays where it is.
constexpr double kEps = 1e-2;

// What a job of its own settings has beside that.
constexpr LossOptions kLoss = {.z_loss = 0.05, .label_smoothing = 0.2};
constexpr double kGroupDecay = 0.3;
constexpr double kGroupScale = 0.25;
constexpr int64_t kFirstOfDecay = kSteps - 2;

double RateOf(int64_t step, bool own_settings) {
  if (own_settings && step > kFirstOfDecay) {
    return kPeak + (kMinimum - kPeak) * static_cast<double>(step - kFirstOfDecay) / 2;
  }
  if (own_settings) return step == 1 ? kPeak / 2 : kPeak;
  if (step <= kWarmup) return kPeak * static_cast<double>(step) / kWarmup;
  const double progress = static_cast<double>(step - kWarmup) / (kSteps - kWarmup);
  return kMinimum + (kPeak - kMinimum) * (0.5 + 0.5 * std::cos(std::acos(-1.0) * progress));
}

// One process, one micro-batch after another.
class NaiveTraining {
 public:
  NaiveTraining(const v1::JobSpec& spec, JobDataset dataset, bool own_settings)
      : own_settings_(own_settings),
        micro_batches_(spec.train().global_batch()),
        tokens_(spec.train().seq_len()),
        data_(std::move(dataset)),
        model_(ShapeOf(spec.model()), 1, tokens_, KeptActivations::kEverything, 1, {}, nullptr,
               own_settings ? kLoss : LossOptions{}) {
    for (const Unit& unit : model_.inventory().units) {
      for (const Parameter& parameter : unit.parameters) {
        std::vector<float> start(static_cast<size_t>(parameter.elements));
        InitializeRange(parameter, spec.train().seed(), 0, parameter.elements, start.data());
        State state;
        state.decay = parameter.shape.size() > 1 ? kDecay : 0;
        if (own_settings) SetAsNamed(parameter.name, state);
        state.weight.assign(start.begin(), start.end());
        state.m.resize(start.size());
        state.v.resize(start.size());
        states_[parameter.name] = state;
      }
    }
  }

  struct Figures {
    double loss = 0;
    double norm = 0;
    int64_t tokens = 0;
  };
  Figures Step(int64_t step) {
    Store();
    Figures figures;
    for (int64_t g = 0; g < micro_batches_; ++g) {
      EXPECT_TRUE(data_.ReadTrain(step, g, inputs_.data(), targets_.data()).ok());
      figures.tokens += Predicted();
    }
    const auto all_tokens = static_cast<double>(figures.tokens);
    for (auto& [name, state] : states_) state.gradient.assign(state.weight.size(), 0);
    for (int64_t g = 0; g < micro_batches_; ++g) {
      EXPECT_TRUE(data_.ReadTrain(step, g, inputs_.data(), targets_.data()).ok());
      figures.loss += model_.Step(view(), static_cast<float>(1 / all_tokens)) / all_tokens;
      for (auto& [name, state] : states_) {
        const float* const gradient = model_.grad(name);
        for (size_t i = 0; i < state.gradient.size(); ++i) state.gradient[i] += gradient[i];
      }
    }
    for (const auto& [name, state] : states_) {
      if (state.frozen) continue;
      for (const double gradient : state.gradient) figures.norm += gradient * gradient;
    }
    figures.norm = std::sqrt(figures.norm);
    Update(step, own_settings_ ? 1.0 : std::min(1.0, kClip / (figures.norm + 1e-6)));
    return figures;
  }

  // Nats a predicted token of what is held out.
  Figures Evaluate() {
    Store();
    Figures figures;
    for (int64_t index = 0; index < data_.eval_micro_batches(); ++index) {
      EXPECT_TRUE(data_.ReadEval(index, inputs_.data(), targets_.data()).ok());
      figures.loss += model_.Loss(view());
      figures.tokens += Predicted();
    }
    figures.loss /= static_cast<double>(figures.tokens);
    return figures;
  }

  const std::vector<double>& weight(const std::string& name) const {
    return states_.at(name).weight;
  }

 private:
  struct State {
    bool frozen = false;
    double decay = 0;
    double scale = 1;
    std::vector<double> weight, m, v, gradient;
  };

  int64_t Predicted() const {
    return std::count_if(targets_.begin(), targets_.end(), [](int32_t t) { return t >= 0; });
  }

  // What AddOwnSettings asks for.
  static void SetAsNamed(const std::string& name, State& state) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    state.frozen = has("0.attn.c_attn") || has("1.self_attn.q_proj") || has("wpe") || has("1.ln_2");
    if (has("norm") || has("ln_")) state.decay = kGroupDecay;
    if (has("mlp.c_proj") || has("mlp.down_proj")) state.scale = kGroupScale;
  }

  MicroBatch view() const { return {1, tokens_, inputs_.data(), targets_.data()}; }
  void Store() {
    for (const auto& [name, state] : states_) {
      std::copy(state.weight.begin(), state.weight.end(), model_.param(name));
    }
  }
  void Update(int64_t step, double coefficient) {
    for (auto& [name, state] : states_) {
      if (state.frozen) continue;
      const double rate = RateOf(step, own_settings_) * state.scale;
      for (size_t i = 0; i < state.weight.size(); ++i) {
        const double gradient = state.gradient[i] * coefficient;
        state.m[i] = kBeta1 * state.m[i] + (1 - kBeta1) * gradient;
        state.v[i] = kBeta2 * state.v[i] + (1 - kBeta2) * gradient * gradient;
        const double m = state.m[i] / (1 - std::pow(kBeta1, step));
        const double v = state.v[i] / (1 - std::pow(kBeta2, step));
        state.weight[i] -= rate * state.decay * state.weight[i];
        state.weight[i] -= rate * m / (std::sqrt(v) + kEps);
      }
    }
  }

  const bool own_settings_;
  const int64_t micro_batches_;
  const int64_t tokens_;
  JobData data_;
  ModelHarness model_;
  std::vector<int32_t> inputs_ = std::vector<int32_t>(static_cast<size_t>(tokens_));
  std::vector<int32_t> targets_ = std::vector<int32_t>(static_cast<size_t>(tokens_));
  std::map<std::string, State> states_;
};

struct Job {
  const char* name;
  const char* strategy;
  int world;
  int64_t micro_batches;
  bool tied;
  int64_t kv_heads;  // of four; 0: GPT-2
  int tensor = 1;
  bool sequence = false;
  // Lines of prompts and completions instead of text: most targets are masked.
  bool prompts = false;
  bool own_settings = false;
};

// The last group that matches decides, also where it says less than one before.
void AddOwnSettings(v1::JobSpec& spec) {
  const bool llama = spec.model().arch() == v1::ARCHITECTURE_LLAMA;
  v1::TrainSpec& train = *spec.mutable_train();
  const auto add_group = [&](const char* pattern) -> v1::ParameterGroup& {
    v1::ParameterGroup& group = *train.mutable_optimizer()->add_groups();
    group.set_parameters(pattern);
    return group;
  };
  add_group(llama ? "*norm*" : "*ln_*").set_weight_decay(kGroupDecay);
  add_group(llama ? "*.mlp.*" : "h.*.mlp.*").set_weight_decay(7);
  add_group("*mlp*").set_lr_scale(1);
  add_group(llama ? "*.down_proj.weight" : "*.mlp.c_proj.*").set_lr_scale(kGroupScale);
  for (const char* const pattern : {"h.0.attn.c_attn.*", "wpe.*", "h.1.ln_2.*"}) {
    if (!llama) train.add_freeze(pattern);
  }
  if (llama) train.add_freeze("*.1.self_attn.q_proj.*");
  train.set_z_loss(kLoss.z_loss);
  train.set_label_smoothing(kLoss.label_smoothing);
  train.set_grad_clip(0);
  train.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_WSD);
  train.mutable_schedule()->set_warmup(2);
  train.mutable_schedule()->set_decay(kSteps - kFirstOfDecay);
  const v1::InvalidFields wrong = ValidateJobSpec(spec);
  EXPECT_EQ(wrong.fields_size(), 0) << wrong.DebugString();
}

v1::JobSpec SpecOf(const Job& job, const std::string& text, const std::string& held_out) {
  v1::JobSpec spec =
      testing::TinyJob(text, job.strategy, v1::DATA_TYPE_FP32, job.micro_batches, kSteps);
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_heads(4);
  model.set_kv_heads(4);
  model.set_vocab(257);
  model.set_tie_embeddings(job.tied);
  if (job.kv_heads > 0) {
    testing::MakeLlama(spec);
    model.set_kv_heads(job.kv_heads);
  }
  spec.mutable_parallel()->set_tensor(job.tensor);
  spec.mutable_parallel()->set_sequence_parallel(job.sequence);
  spec.mutable_data()->add_eval(held_out);
  if (job.prompts) spec.mutable_data()->set_format(v1::DATA_FORMAT_PROMPT_COMPLETION);
  v1::TrainSpec& train = *spec.mutable_train();
  train.set_eval_every(2);
  train.set_grad_clip(kClip);
  train.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_COSINE);
  train.mutable_schedule()->set_warmup(kWarmup);
  train.mutable_schedule()->set_min_lr(kMinimum);
  v1::OptimizerSpec& optimizer = *train.mutable_optimizer();
  optimizer.set_lr(kPeak);
  optimizer.set_beta1(kBeta1);
  optimizer.set_beta2(kBeta2);
  optimizer.set_eps(kEps);
  optimizer.set_weight_decay(kDecay);
  if (job.own_settings) AddOwnSettings(spec);
  return spec;
}

// Of three or four steps in single precision; a weight moves by 3e-3 in each.
constexpr double kWeightTolerance = 2e-6;
constexpr double kRelativeTolerance = 2e-5;

void ExpectWeights(const std::string& path, const NaiveTraining& naive) {
  for (const auto& [name, values] : testing::ReadWeights(path)) {
    const std::vector<double>& expected = naive.weight(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], expected[i], kWeightTolerance) << name << " " << i;
    }
  }
}

class TrainingNumbers : public ::testing::TestWithParam<Job> {};

INSTANTIATE_TEST_SUITE_P(
    , TrainingNumbers,
    ::testing::Values(Job{"DdpAlone", "ddp", 1, 3, true, 0},
                      Job{"DdpInRounds", "ddp", 2, 4, false, 0},
                      Job{"Zero1", "zero1", 3, 3, true, 1},
                      Job{"Zero2InUnevenRounds", "zero2", 2, 5, true, 0},
                      Job{"Zero3InUnevenRounds", "zero3", 3, 4, false, 2},
                      Job{"Hybrid", "hybrid 2", 4, 4, true, 0},
                      Job{"TensorOfTwoBesideData", "zero3", 4, 4, true, 0, 2},
                      Job{"TensorOfFourOverTwoKeyHeads", "ddp", 4, 2, false, 2, 4},
                      Job{"SequenceOfTwo", "zero2", 2, 1, true, 0, 2, true},
                      Job{"SequenceOfFourOverOneKeyHead", "zero1", 4, 2, true, 1, 4, true},
                      Job{"MaskedDdp", "ddp", 2, 4, true, 0, 1, false, true},
                      Job{"MaskedZero1", "zero1", 3, 5, false, 0, 1, false, true},
                      Job{"MaskedZero3InUnevenRounds", "zero3", 3, 4, true, 2, 1, false, true},
                      Job{"MaskedTensorOfTwo", "zero2", 4, 3, false, 0, 2, true, true},
                      Job{"OwnSettingsAlone", "ddp", 1, 3, true, 0, 1, false, false, true},
                      Job{"OwnSettingsZero1", "zero1 all_reduce", 3, 3, false, 0, 1, false, false, true},
                      Job{"OwnSettingsZero2", "zero2", 3, 4, true, 2, 1, false, false, true},
                      Job{"OwnSettingsZero3", "zero3 kept", 2, 5, true, 0, 1, false, false, true},
                      Job{"OwnSettingsHybrid", "hybrid 2", 4, 4, false, 0, 1, false, false, true},
                      Job{"OwnSettingsTensor", "ddp", 4, 2, false, 2, 4, false, false, true},
                      Job{"OwnSettingsSequence", "zero3", 4, 2, true, 0, 2, true, false, true}),
    [](const auto& job) { return std::string(job.param.name); });

std::string MakeData(const Job& job, int64_t bytes, uint64_t seed) {
  const std::string text = testing::MakeText(bytes, seed);
  if (!job.prompts) return text;
  // Of all lengths: completions that fill a sequence, and that are hardly there.
  std::string lines;
  for (size_t at = 0; at + 20 < text.size(); at += 20) {
    std::string words = text.substr(at, 20);
    std::replace(words.begin(), words.end(), '\n', ' ');
    const size_t prompt = 1 + at / 20 * 5 % 13;
    absl::StrAppend(&lines, "{\"prompt\": \"", words.substr(0, prompt), "\", \"completion\": \"",
                    words.substr(prompt, at / 20 % 7), "\"}\n");
  }
  return lines;
}

// F1–F7, F11, F13, F14: loss, gradient norm, clipping, schedule, AdamW; groups, frozen parameters
// and what is trained for beside the cross-entropy, which is the loss that is told; and the
// held-out loss over all predicted tokens alike, though the last micro-batch of the text has only
// three.
TEST_P(TrainingNumbers, AreThoseOfTheArithmeticWrittenOut) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", MakeData(GetParam(), 3000, 8));
  const std::string held_out = scratch.Write("eval.txt", MakeData(GetParam(), 5 * 16 + 4, 9));
  const v1::JobSpec spec = SpecOf(GetParam(), text, held_out);
  const std::vector<RankRecord> ranks = LocalWorld(spec, GetParam().world).Run();
  const RankRecord& first = ranks.front();
  ASSERT_TRUE(first.result.status.ok()) << first.result.status;
  ASSERT_EQ(first.steps.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(first.evals.size(), 2u);

  absl::StatusOr<JobDataset> dataset = OpenJobDataset(
      spec, {.data_root = "", .cache_directory = scratch / "tokens", .stopped = nullptr});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const bool own_settings = GetParam().own_settings;
  NaiveTraining naive(spec, *std::move(dataset), own_settings);
  for (const v1::StepReport& step : first.steps) {
    const NaiveTraining::Figures expected = naive.Step(step.step());
    EXPECT_NEAR(step.loss(), expected.loss, kRelativeTolerance * expected.loss) << step.step();
    EXPECT_NEAR(step.grad_norm(), expected.norm, kRelativeTolerance * expected.norm) << step.step();
    EXPECT_TRUE(own_settings || expected.norm > kClip);
    EXPECT_EQ(step.tokens(), expected.tokens);
    EXPECT_NEAR(step.lr(), RateOf(step.step(), own_settings), 1e-12);
    if (step.step() % 2 != 0) continue;
    const v1::EvalReport& eval = first.evals[static_cast<size_t>(step.step() / 2 - 1)];
    const NaiveTraining::Figures held_out_figures = naive.Evaluate();
    EXPECT_NEAR(eval.loss(), held_out_figures.loss, kRelativeTolerance * held_out_figures.loss);
    EXPECT_EQ(eval.tokens(), held_out_figures.tokens);
    if (!GetParam().prompts) {
      EXPECT_EQ(eval.tokens(), 5 * 16 + 3);
    }
  }
  ExpectWeights(first.result.weights_path, naive);
}

}  // namespace
}  // namespace sherd
