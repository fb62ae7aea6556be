// Folders of the common Python stack against what that stack computes from them.
#include "worker/pretrained/pretrained_folder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/shard_layout.h"
#include "tests/worker/checkpoint/whole_tensors.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/pretrained/golden_folder.h"
#include "worker/checkpoint/training_state.h"

namespace sherd {
namespace {

class PretrainedFolderTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    absl::StatusOr<PretrainedFolder> opened = PretrainedFolder::Open("", GoldenPath(GetParam()));
    ASSERT_TRUE(opened.ok()) << opened.status();
    folder_.emplace(*std::move(opened));
  }
  std::optional<PretrainedFolder> folder_;
};

INSTANTIATE_TEST_SUITE_P(Golden, PretrainedFolderTest, testing::ValuesIn(kGoldenFolders));

std::vector<float> FloatsOf(const RawTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// F14, F50: transposed weights, interleaved heads, rotary frequencies, tied heads: any mistake in
// one of them changes a logit or a gradient by far more.
TEST_P(PretrainedFolderTest, ComputesWhatTheCommonStackComputes) {
  const RawTensors expected = ReadSafetensors(GoldenPath(GetParam()) + "/expected.safetensors");
  const RawTensor& inputs = expected.at("inputs");
  const MicroBatch batch{inputs.shape[0], inputs.shape[1],
                         reinterpret_cast<const int32_t*>(inputs.bytes.data()),
                         reinterpret_cast<const int32_t*>(expected.at("targets").bytes.data())};
  ModelHarness model(folder_->shape(), batch.batch, batch.tokens);
  for (const auto& [name, values] : LoadWhole(*folder_)) {
    std::copy(values.begin(), values.end(), model.param(name));
  }
  model.Loss(batch);
  const std::vector<float> logits = model.Logits(batch.batch * batch.tokens);
  const std::vector<float> want = FloatsOf(expected.at("logits"));
  ASSERT_EQ(logits.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(logits[i], want[i], 1e-4) << i;
  model.Step(batch, 1.0f);
  size_t gradients = 0;
  for (const auto& [name, tensor] : expected) {
    if (name.rfind("grad.", 0) != 0) continue;
    ++gradients;
    const std::vector<float> gradient = FloatsOf(tensor);
    ASSERT_EQ(tensor.shape, model.parameter(name.substr(5)).shape) << name;
    const float* ours = model.grad(name.substr(5));
    for (size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(ours[i], gradient[i], 1e-4) << name;
  }
  EXPECT_EQ(gradients, WeightsOf(model.inventory()).size());
}

// Every rank of a world of tensor × data gets exactly its part, whatever the cuts, and padding is
// left alone; it reads little more than its share of the bytes.
TEST_P(PretrainedFolderTest, AnyRankOfAnyLayoutGetsItsShare) {
  const WholeWeights whole = LoadWhole(*folder_);
  const ModelShape shape = folder_->shape();
  int64_t all_bytes = 0;
  for (const auto& [name, values] : whole) {
    all_bytes += static_cast<int64_t>(values.size()) * BytesOf(GoldenType(GetParam()));
  }
  for (const int tensor : {1, 2}) {
    for (const int data : {1, 2, 3}) {
      for (int rank = 0; rank < tensor * data; ++rank) {
        const Inventory inventory = BuildInventory(shape, {tensor, rank % tensor});
        std::vector<std::vector<float>> units;
        std::vector<TensorTarget> targets;
        std::vector<ElementRange> shards;
        for (const Unit& unit : inventory.units) {
          shards.push_back(LayoutUnit(unit.elements, data).Filled(rank / tensor));
          units.emplace_back(static_cast<size_t>(shards.back().size()), 0.0f);
          AppendWeightTargets(unit, shards.back(), units.back().data(), targets);
        }
        const absl::StatusOr<int64_t> read = folder_->Load(targets, 1 + rank % 2);
        ASSERT_TRUE(read.ok()) << read.status();
        // A tied head that is there is compared; transposed tensors are read by whole rows.
        EXPECT_LE(*read, 2 * all_bytes / data);
        for (size_t u = 0; u < units.size(); ++u) {
          const std::vector<float> all = FlatBuffer(inventory.units[u], whole, 0);
          for (int64_t at = shards[u].begin; at < shards[u].end; ++at) {
            ASSERT_EQ(units[u][static_cast<size_t>(at - shards[u].begin)],
                      all[static_cast<size_t>(at)])
                << tensor << " x " << data << " rank " << rank << " unit " << u << " at " << at;
          }
        }
      }
    }
  }
}

TEST_P(PretrainedFolderTest, GivesUpWhenItIsTold) {
  std::vector<float> value(1);
  const TensorDescription first = WeightsOf(BuildInventory(folder_->shape())).front();
  const TensorTarget target{first.name, first.shape, {0, first.shape.back()}, 3, 4, value.data()};
  EXPECT_TRUE(absl::IsAborted(folder_->Load({&target, 1}, 1, [] { return true; }).status()));
  EXPECT_TRUE(folder_->Load({&target, 1}, 1, [] { return false; }).ok());
}

}  // namespace
}  // namespace sherd
