#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_ops.h"
#include "plan/activations.h"
#include "plan/shard_layout.h"
#include "tests/worker/model/model_harness.h"

namespace sherd {
namespace {

// A model some of whose activations lie where gradients of its units come to lie, one behind the
// other, and one with memory of its own; both of the same parameters.
class SpareMemoryModels {
 public:
  SpareMemoryModels(const ModelShape& shape, int64_t batch, int64_t tokens, KeptActivations kept)
      : shape_(shape),
        batch_(batch),
        tokens_(tokens),
        kept_(kept),
        inventory_(BuildInventory(shape)),
        layout_(BuildShardLayout(inventory_, /*degree=*/1)),
        ops_(MakeCpuOps(1)) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0f, 0.3f);
    std::vector<int64_t> bytes;
    int64_t elements = 0;
    for (const UnitLayout& unit : layout_.units) {
      params_.emplace_back(static_cast<size_t>(unit.elements));
      for (float& value : params_.back()) value = normal(generator);
      param_units_.push_back({params_.back().data(), DType::kF32});
      bytes.push_back(unit.padded_elements * SizeOf(DType::kF32));
      elements += unit.padded_elements;
    }
    for (Side* side : {&apart_, &spared_}) {
      side->gradients = Buffer(gradient_meter_, Pool::kGrads, elements * SizeOf(DType::kF32));
      float* next = side->gradients.as<float>();
      std::fill_n(next, elements, std::numeric_limits<float>::quiet_NaN());
      for (const UnitLayout& unit : layout_.units) {
        side->units.push_back({next, DType::kF32});
        next += unit.padded_elements;
      }
    }
    room_ = GradientRoom(bytes, shape.tie_embeddings ? 1 : 0);
    apart_.model = MakeModel(shape, inventory_, batch, tokens, kept, *ops_, apart_.meter);
    spared_.model =
        MakeModel(shape, inventory_, batch, tokens, kept, *ops_, spared_.meter, /*tensor=*/nullptr,
                  LossOptions{}, {.room = room_, .gradients = spared_.gradients.data()});
  }

  // F16: to the byte.
  void ExpectPredicted() {
    EXPECT_EQ(spared_.meter.current(Pool::kActivations),
              PredictActivationBytes(shape_, PartOf(shape_, {}), batch_, tokens_, kept_, room_));
  }
  int64_t spared_bytes() const {
    return apart_.meter.current(Pool::kActivations) - spared_.meter.current(Pool::kActivations);
  }

  void ExpectSameStep(uint64_t seed) {
    const RandomBatch batch(batch_, tokens_, shape_.vocab, seed);
    EXPECT_EQ(Step(apart_, batch.view()), Step(spared_, batch.view()));
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      EXPECT_EQ(0, std::memcmp(apart_.units[unit].data, spared_.units[unit].data,
                               static_cast<size_t>(layout_.units[unit].elements) * sizeof(float)))
          << "unit " << unit;
    }
    EXPECT_EQ(Loss(apart_, batch.view()), Loss(spared_, batch.view()));
  }

 private:
  struct Side {
    MemoryMeter meter;
    Buffer gradients;
    std::vector<UnitGrads> units;
    std::unique_ptr<Model> model;
  };

  void Forward(Side& side, const MicroBatch& batch) {
    for (int unit = 0; unit < std::ssize(layout_.units); ++unit) {
      side.model->Forward(unit, param_units_, batch);
    }
  }
  double Loss(Side& side, const MicroBatch& batch) {
    Forward(side, batch);
    return side.model->Loss(param_units_, batch);
  }
  double Step(Side& side, const MicroBatch& batch) {
    Forward(side, batch);
    double loss = 0;
    for (int unit = static_cast<int>(layout_.units.size()) - 1; unit >= 0; --unit) {
      loss += side.model->Backward(unit, param_units_, side.units, batch, 0.1f);
    }
    return loss;
  }

  const ModelShape shape_;
  const int64_t batch_, tokens_;
  const KeptActivations kept_;
  const Inventory inventory_;
  const ShardLayout layout_;
  const std::unique_ptr<Ops> ops_;
  MemoryMeter gradient_meter_;
  std::vector<std::vector<float>> params_;
  std::vector<UnitParams> param_units_;
  GradientRoom room_;
  Side apart_, spared_;
};

// F8: not a bit of a gradient or a loss differs, step after step, also after passes without a
// backward; be a block's gradients more than its activations or fewer, and the logits more than
// either.
TEST(SpareMemory, ChangesNoBit) {
  for (const Architecture arch : {Architecture::kGpt2, Architecture::kLlama}) {
    for (const bool tied : {true, false}) {
      for (const KeptActivations kept :
           {KeptActivations::kEverything, KeptActivations::kBlockInputs}) {
        for (const int64_t tokens : {3, 40}) {
          for (const int64_t vocab : {19, 2100}) {
            ModelShape shape;
            shape.arch = arch;
            shape.layers = 5;
            shape.hidden = 24;
            shape.heads = 4;
            shape.kv_heads = arch == Architecture::kLlama ? 2 : 4;
            shape.ffn = 52;
            shape.vocab = vocab;
            shape.context = 40;
            shape.tie_embeddings = tied;
            SCOPED_TRACE(absl::StrCat(arch == Architecture::kLlama ? "llama" : "gpt2", " tied ",
                                      tied, " tokens ", tokens, " vocab ", vocab));
            SpareMemoryModels models(shape, 2, tokens, kept);
            models.ExpectPredicted();
            EXPECT_GT(models.spared_bytes(), 0);
            for (const uint64_t seed : {1, 2}) models.ExpectSameStep(seed);
          }
        }
      }
    }
  }
}

// Logits of a chunk are the widest of activations, and lie where the last block's gradients will.
TEST(SpareMemory, HoldsLogitsAtItsEnd) {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 32;
  shape.heads = 2;
  shape.kv_heads = 2;
  shape.ffn = 64;
  shape.context = 8;
  for (const int64_t vocab : {100, 700}) {
    shape.vocab = vocab;
    const ModelPart part = PartOf(shape, {});
    const int64_t rows = 8;
    const std::vector<int64_t> bytes = {64 * 1000, 64 * 500, 64 * 500, 64};
    GradientRoom room(bytes, 1);
    const std::optional<int64_t> place = PlaceLogits(part, rows, room);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(*place, 64 * 2000 - (4 * rows * vocab + 63) / 64 * 64);
  }
  // Not if what they would share otherwise is larger than the gradients.
  GradientRoom narrow(std::vector<int64_t>{64 * 1000, 64 * 500, 64 * 10, 64}, 1);
  EXPECT_EQ(PlaceLogits(PartOf(shape, {}), 8, narrow), std::nullopt);
}

// F16: what is predicted for activations is what is allocated, wherever gradients leave room.
TEST(SpareMemory, IsUsedAsThePlanPredicts) {
  std::mt19937_64 generator(13);
  for (int i = 0; i < 300; ++i) {
    const RandomModel drawn(generator);
    SpareMemoryModels models(drawn.shape, drawn.batch, drawn.tokens, drawn.kept);
    models.ExpectPredicted();
  }
}

}  // namespace
}  // namespace sherd
