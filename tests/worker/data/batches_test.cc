#include "worker/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "worker/data/mixture_weights.h"

namespace sherd {
namespace {

using testing::ElementsAre;

// Token i is i mod 100.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(int64_t tokens) : tokens_(tokens) {}
  int64_t tokens() const override { return tokens_; }
  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    EXPECT_LE(begin + count, tokens_);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>((begin + i) % 100);
    return absl::OkStatus();
  }

 private:
  const int64_t tokens_;
};

struct Batch {
  explicit Batch(int64_t size)
      : inputs(static_cast<size_t>(size), -7), targets(static_cast<size_t>(size), -7) {}
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
};

std::unique_ptr<Sequences> Cut(int64_t tokens, int64_t seq_len, int64_t vocab,
                               Tail tail = Tail::kDropped) {
  auto cut = CutWindows(std::make_unique<CountingSource>(tokens), seq_len, vocab, tail);
  EXPECT_TRUE(cut.ok()) << cut.status();
  return *std::move(cut);
}

struct Options {
  int64_t seq_len = 0;
  int64_t micro_batch = 0;
  int64_t global_batch = 0;
  int64_t vocab = 0;
  uint64_t seed = 0;
};

TrainingData MakeTraining(int64_t tokens, const Options& options) {
  std::vector<TrainingSource> sources;
  sources.push_back({Cut(tokens, options.seq_len, options.vocab)});
  auto data = TrainingData::Make(std::move(sources),
                                 {options.micro_batch, options.global_batch, options.seed});
  EXPECT_TRUE(data.ok()) << data.status();
  return *std::move(data);
}

TEST(TrainingData, TargetsAreTheTokensAfterTheInputs) {
  const TrainingData data = MakeTraining(1000, {7, 3, 6, 256, 1});
  Batch batch(21);
  ASSERT_TRUE(data.FillMicroBatch(2, 1, batch.inputs.data(), batch.targets.data()).ok());
  for (size_t i = 0; i < 21; ++i) EXPECT_EQ(batch.targets[i], (batch.inputs[i] + 1) % 100);
}

// F48: a sample is a function of its number in the run alone: how steps are cut into micro-batches,
// and hence the world's size, changes nothing.
TEST(TrainingData, SamplesDoNotDependOnTheMicroBatch) {
  const TrainingData ones = MakeTraining(1000, {7, 1, 6, 256, 1});
  const TrainingData threes = MakeTraining(1000, {7, 3, 6, 256, 1});
  for (const int64_t step : {1, 2, 30}) {
    for (int64_t g = 0; g < 2; ++g) {
      Batch three(21);
      ASSERT_TRUE(threes.FillMicroBatch(step, g, three.inputs.data(), three.targets.data()).ok());
      Batch one(21);
      for (int64_t b = 0; b < 3; ++b) {
        ASSERT_TRUE(ones.FillMicroBatch(step, 3 * g + b, one.inputs.data() + 7 * b,
                                        one.targets.data() + 7 * b)
                        .ok());
      }
      EXPECT_EQ(one.inputs, three.inputs);
      EXPECT_EQ(one.targets, three.targets);
    }
  }
}

// F48: sample i of the run is window i of the order, from the first step on.
TEST(TrainingData, StepsTakeTheSamplesInTheirOrder) {
  // 14 windows of 7 tokens, of which a step takes 6.
  const TrainingData data = MakeTraining(99, {7, 2, 6, 256, 3});
  const SampleOrder order(14, 3);
  Batch batch(14);
  for (int64_t sample = 0; sample < 30; sample += 2) {
    ASSERT_TRUE(data.FillMicroBatch(sample / 6 + 1, sample % 6 / 2, batch.inputs.data(),
                                    batch.targets.data())
                    .ok());
    EXPECT_EQ(batch.inputs[0], 7 * order.Window(sample));
    EXPECT_EQ(batch.inputs[7], 7 * order.Window(sample + 1));
  }
}

TEST(TrainingData, APassReadsEveryWindowOnce) {
  // 14 windows of 7 tokens: tokens 0…98; two are left over.
  const TrainingData data = MakeTraining(101, {7, 2, 14, 256, 3});
  std::set<int32_t> starts;
  Batch batch(14);
  for (int64_t g = 0; g < 7; ++g) {
    ASSERT_TRUE(data.FillMicroBatch(1, g, batch.inputs.data(), batch.targets.data()).ok());
    starts.insert({batch.inputs[0], batch.inputs[7]});
  }
  EXPECT_EQ(starts.size(), 14u);
  for (const int32_t start : starts) EXPECT_EQ(start % 7, 0);
}

TEST(TrainingData, AcceptsExactlyOneSequenceAndTheTokenAfter) {
  EXPECT_FALSE(CutWindows(std::make_unique<CountingSource>(7), 7, 256, Tail::kDropped).ok());
  const TrainingData data = MakeTraining(8, {7, 1, 1, 256, 1});
  Batch batch(7);
  EXPECT_TRUE(data.FillMicroBatch(5, 0, batch.inputs.data(), batch.targets.data()).ok());
  EXPECT_THAT(batch.targets, ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST(TrainingData, RefusesATokenOutsideOfTheVocabulary) {
  const TrainingData data = MakeTraining(1000, {99, 1, 1, 50, 1});
  Batch batch(99);
  const absl::Status status = data.FillMicroBatch(1, 0, batch.inputs.data(), batch.targets.data());
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
}

TEST(EvaluationData, PredictsEveryTokenOnceAndPadsTheTail) {
  const EvaluationData data(Cut(19, 4, 256, Tail::kKept), 2);
  ASSERT_EQ(data.micro_batches(), 3);
  std::vector<int32_t> targets;
  Batch batch(8);
  for (int64_t e = 0; e < 3; ++e) {
    ASSERT_TRUE(data.FillMicroBatch(e, batch.inputs.data(), batch.targets.data()).ok());
    for (const int32_t target : batch.targets) {
      if (target >= 0) targets.push_back(target);
    }
  }
  ASSERT_EQ(targets.size(), 18u);
  for (int32_t i = 0; i < 18; ++i) EXPECT_EQ(targets[static_cast<size_t>(i)], i + 1);
  EXPECT_THAT(batch.inputs, ElementsAre(16, 17, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(17, 18, -1, -1, -1, -1, -1, -1));
  // A rank without a share of the last round gets nothing that counts.
  ASSERT_TRUE(data.FillMicroBatch(3, batch.inputs.data(), batch.targets.data()).ok());
  EXPECT_THAT(batch.targets, testing::Each(-1));
}

// F6: what a step's loss is divided by.
TEST(TrainingData, KnowsHowManyTokensAStepPredicts) {
  const TrainingData data = MakeTraining(1000, {7, 3, 6, 256, 1});
  EXPECT_EQ(data.Targets(1), 42);
  EXPECT_EQ(data.Targets(1000), 42);
}

// F48: a mixture's sources take turns by weight, each in the order that it has by itself, whatever
// the micro-batch.
TEST(TrainingData, MixesSourcesByWeight) {
  std::vector<TrainingSource> sources;
  sources.push_back({Cut(99, 7, 256), 3});
  sources.push_back({Cut(50, 7, 256), 1});
  auto data = TrainingData::Make(std::move(sources), {2, 4, 3});
  ASSERT_TRUE(data.ok());
  const auto mixture = Mixture::Make({{14, 3}, {7, 1}}, 3);
  ASSERT_TRUE(mixture.ok());
  Batch batch(14);
  for (int64_t sample = 0; sample < 80; sample += 2) {
    ASSERT_TRUE(data->FillMicroBatch(sample / 4 + 1, sample % 4 / 2, batch.inputs.data(),
                                     batch.targets.data())
                    .ok());
    EXPECT_EQ(batch.inputs[0], 7 * mixture->Window(sample).window);
    EXPECT_EQ(batch.inputs[7], 7 * mixture->Window(sample + 1).window);
  }
}

// F48: nothing that is held out is trained on, and nothing is lost.
TEST(Sequences, SidesOfASplitHoldEveryWindowOnce) {
  const std::shared_ptr<const Sequences> all = Cut(99, 7, 256);
  const auto split = ValidationSplit::Make(all->count(), 0.25, 5);
  ASSERT_TRUE(split.ok());
  std::multiset<int32_t> starts;
  Batch batch(7);
  for (const auto& side : {TrainingSide(all, *split), ValidationSide(all, *split)}) {
    for (int64_t i = 0; i < side->count(); ++i) {
      ASSERT_TRUE(side->Fill(i, batch.inputs.data(), batch.targets.data()).ok());
      EXPECT_EQ(side->Targets(i), 7);
      starts.insert(batch.inputs[0]);
    }
  }
  std::multiset<int32_t> expected;
  for (int32_t window = 0; window < 14; ++window) expected.insert(7 * window);
  EXPECT_EQ(starts, expected);
}

TEST(Sequences, JoinedOnesFollowOneAnother) {
  std::vector<std::unique_ptr<Sequences>> parts;
  parts.push_back(Cut(19, 4, 256, Tail::kKept));
  parts.push_back(Cut(9, 4, 256, Tail::kKept));
  const std::unique_ptr<Sequences> joined = JoinSequences(std::move(parts));
  ASSERT_EQ(joined->count(), 7);
  EXPECT_EQ(joined->Targets(4), 2);
  EXPECT_EQ(joined->Targets(5), 4);
  Batch batch(4);
  ASSERT_TRUE(joined->Fill(6, batch.inputs.data(), batch.targets.data()).ok());
  EXPECT_THAT(batch.targets, ElementsAre(5, 6, 7, 8));
}

TEST(WholeWeights, AreInProportion) {
  EXPECT_THAT(WholeWeights(std::vector<double>{1, 2.5}), ElementsAre(2, 5));
  EXPECT_THAT(WholeWeights(std::vector<double>{0.7, 0.2, 0.1}), ElementsAre(7, 2, 1));
  EXPECT_THAT(WholeWeights(std::vector<double>{3}), ElementsAre(1));
  EXPECT_THAT(WholeWeights(std::vector<double>{1e300, 1e300}), ElementsAre(1 << 18, 1 << 18));
  EXPECT_THAT(WholeWeights(std::vector<double>{1.0 / 3, 1}), ElementsAre(1 << 17, 3 << 17));
  EXPECT_THAT(WholeWeights(std::vector<double>{1e-9, 1}), ElementsAre(1, 1 << 19));
}

}  // namespace
}  // namespace sherd
