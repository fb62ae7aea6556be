// What jobs train on: tokenizers, mixtures, held-out parts, prompts and completions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/jobs.h"
#include "tests/worker/tokenizer/tokenizers.h"
#include "tests/worker/train/checkpoint_jobs.h"
#include "tests/worker/train/outcome.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/save.h"
#include "worker/pack/pack.h"

namespace sherd::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Loss, gradient norm, tokens and held-out losses, as bits.
std::vector<uint64_t> CurveOf(const std::vector<RankRecord>& ranks) {
  std::vector<uint64_t> curve;
  for (const v1::StepReport& step : ranks[0].steps) {
    curve.push_back(std::bit_cast<uint64_t>(step.loss()));
    curve.push_back(std::bit_cast<uint64_t>(step.grad_norm()));
    curve.push_back(static_cast<uint64_t>(step.tokens()));
  }
  for (const v1::EvalReport& eval : ranks[0].evals) {
    curve.push_back(std::bit_cast<uint64_t>(eval.loss()));
    curve.push_back(static_cast<uint64_t>(eval.tokens()));
  }
  return curve;
}

class DataTraining : public CheckpointJobs {
 protected:
  std::string Prompts(int count) {
    const std::string text = MakeText(40 * count, 6);
    std::string lines;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      std::string words = text.substr(40 * i, 40);
      std::replace(words.begin(), words.end(), '\n', ' ');
      absl::StrAppend(&lines, "{\"prompt\": \"", words.substr(0, i * 5 % 16),
                      "\", \"completion\": \"", words.substr(20, 1 + i * 3 % 20), "\"}\n");
    }
    return scratch_.Write("prompts.jsonl", lines);
  }
};

// F6, F12, F35: ranks whose shares of a step predict different numbers of tokens give the bits of
// one rank, at any world.
TEST_F(DataTraining, MaskedStepsHaveTheSameBitsAtAnyWorld) {
  const std::string prompts = Prompts(40);
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    const auto train = [&](const char* strategy, int world) {
      v1::JobSpec spec = TinyJob(prompts, strategy, type, 5, 6);
      spec.mutable_data()->set_format(v1::DATA_FORMAT_PROMPT_COMPLETION);
      spec.mutable_data()->add_eval(prompts);
      return CurveOf(Run(spec, world));
    };
    const std::vector<uint64_t> one = train("zero3", 1);
    for (const char* const strategy : {"zero2", "zero3"}) {
      for (const int world : {2, 3}) {
        EXPECT_EQ(train(strategy, world), one) << strategy << " " << world;
      }
    }
  }
}

TEST_F(DataTraining, LinesThatAreLeftOutAreToldInTheLog) {
  scratch_.Write("long.jsonl",
                 "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                 "{\"prompt\": \"longer than any sequence\", \"completion\": \"b\"}\n");
  v1::JobSpec spec = TinyJob(scratch_ / "long.jsonl", "zero3", v1::DATA_TYPE_FP32, 1, 1);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_PROMPT_COMPLETION);
  EXPECT_THAT(Run(spec, 2)[0].log, Contains(HasSubstr("data.train: 1 of 2 lines are left out")));
}

// Text and tokenizer are as good as the tokens that `sherd data tokenize` makes of them, and the
// weights say what their tokens mean.
TEST_F(DataTraining, ATokenizerMakesTheTokensOfThePacker) {
  PackOptions pack;
  pack.tokenizer = scratch_.Write("tokenizer.json", GoldenTokenizerJson("gpt2").dump());
  pack.files = {text_};
  pack.out = scratch_ / "packed.bin";
  ASSERT_TRUE(Pack(pack, [](const PackProgress&) {}).ok());
  const auto train = [&](const std::string& data, v1::DataFormat format, int world) {
    v1::JobSpec spec = Job("zero3", 4, 0);
    spec.mutable_model()->set_vocab(2000);
    spec.mutable_data()->set_train(0, data);
    spec.mutable_data()->set_format(format);
    spec.mutable_data()->set_tokenizer(pack.tokenizer);
    return CurveOf(Run(spec, world));
  };
  const std::vector<uint64_t> packed = train(pack.out, v1::DATA_FORMAT_LLMC, 1);
  EXPECT_EQ(train(text_, v1::DATA_FORMAT_TEXT, 3), packed);
  const auto manifest = ReadManifest(FinalDirectory(root_));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->info.tokenizer, pack.tokenizer);
  // A second start finds the tokens, and other files below checkpoint.dir are in nobody's way.
  EXPECT_TRUE(std::filesystem::is_directory(root_ + "/tokens"));
  EXPECT_EQ(train(text_, v1::DATA_FORMAT_TEXT, 2), packed);
  EXPECT_TRUE(CheckRoot(*files_, root_).ok());
}

class MixtureTraining : public DataTraining {
 protected:
  v1::JobSpec Mixed(int64_t steps, int64_t every, absl::string_view resume = "none") {
    v1::JobSpec spec = Job("zero3", steps, every, resume);
    spec.mutable_data()->add_train(other_);
    spec.mutable_data()->add_train_weights(2.5);
    spec.mutable_data()->add_train_weights(1);
    spec.mutable_data()->set_validation_split(0.1);
    return spec;
  }

  const std::string other_ = scratch_.Write("other.txt", MakeText(1500, 12));
};

// F48: neither the world nor a restart changes which samples a step trains on.
TEST_F(MixtureTraining, GoesOnWithTheSamplesOfTheUndisturbedRun) {
  const std::vector<RankRecord> whole = Run(Mixed(8, 0), 1);
  ASSERT_EQ(whole[0].evals.size(), 1u);
  EXPECT_GT(whole[0].evals[0].tokens(), 16 * 25);
  EXPECT_EQ(CurveOf(Run(Mixed(8, 0), 3)), CurveOf(whole));

  Run(Mixed(5, 5), 3);
  const std::vector<RankRecord> resumed = Run(Mixed(8, 5, "latest"), 2);
  ASSERT_EQ(resumed[0].steps.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(resumed[0].steps[i].loss(), whole[0].steps[i + 5].loss());
    EXPECT_EQ(resumed[0].steps[i].grad_norm(), whole[0].steps[i + 5].grad_norm());
  }
}

TEST_F(MixtureTraining, OtherWeightsAreAnotherJob) {
  Run(Mixed(5, 5), 2);
  for (const bool split : {false, true}) {
    v1::JobSpec spec = Mixed(8, 5, "latest");
    if (split) spec.mutable_data()->set_validation_split(0);
    if (!split) spec.mutable_data()->set_train_weights(0, 3);
    const std::vector<RankRecord> ranks = LocalWorld(spec, 2).Run();
    EXPECT_FALSE(ranks[0].result.status.ok());
    EXPECT_THAT(std::string(ranks[0].result.status.message()),
                HasSubstr(split ? "data.validation_split was 0.1 and is 0"
                                : "the weighting of data.train was 2.5, 1 and is 3, 1"));
  }
}

}  // namespace
}  // namespace sherd::testing
