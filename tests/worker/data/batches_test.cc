#include "worker/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

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

TrainingData MakeTraining(int64_t tokens, const BatchOptions& options) {
  auto data = TrainingData::Make(std::make_unique<CountingSource>(tokens), options);
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
  EXPECT_FALSE(TrainingData::Make(std::make_unique<CountingSource>(7), {7, 1, 1, 256, 1}).ok());
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
  auto data = EvaluationData::Make(std::make_unique<CountingSource>(19), {4, 2, 0, 256, 0});
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->targets(), 18);
  ASSERT_EQ(data->micro_batches(), 3);
  std::vector<int32_t> targets;
  Batch batch(8);
  for (int64_t e = 0; e < 3; ++e) {
    ASSERT_TRUE(data->FillMicroBatch(e, batch.inputs.data(), batch.targets.data()).ok());
    for (const int32_t target : batch.targets) {
      if (target >= 0) targets.push_back(target);
    }
  }
  ASSERT_EQ(targets.size(), 18u);
  for (int32_t i = 0; i < 18; ++i) EXPECT_EQ(targets[static_cast<size_t>(i)], i + 1);
  EXPECT_THAT(batch.inputs, ElementsAre(16, 17, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(17, 18, -1, -1, -1, -1, -1, -1));
  // A rank without a share of the last round gets nothing that counts.
  ASSERT_TRUE(data->FillMicroBatch(3, batch.inputs.data(), batch.targets.data()).ok());
  EXPECT_THAT(batch.targets, testing::Each(-1));
}

}  // namespace
}  // namespace sherd
