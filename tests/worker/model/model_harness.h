#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/memory.h"
#include "worker/model/model.h"

namespace sherd {

// A model with its parameters and gradients in flat buffers a unit, as a rank that holds all of
// them would have it.
class ModelHarness {
 public:
  // `tensor` is the group of which the model is the member `place`; `loss` is what gradients are
  // of.
  ModelHarness(const ModelShape& shape, int64_t batch, int64_t tokens,
               KeptActivations kept = KeptActivations::kEverything, int threads = 1,
               const TensorPlace& place = {}, TensorGroup* tensor = nullptr,
               const LossOptions& loss = {});

  // A parameter's values and gradient.
  float* param(const std::string& name);
  float* grad(const std::string& name);
  const Parameter& parameter(const std::string& name) const;

  // Far from the usual start, so that no term of a gradient is small.
  void Randomize(uint64_t seed);
  // Forward over all units; the sum of token losses.
  double Loss(const MicroBatch& micro_batch);
  // Forward, then backward into the gradients.
  double Step(const MicroBatch& micro_batch, float scale);
  // Logits (rows, V) of the first rows of the last forward.
  std::vector<float> Logits(int64_t rows);
  // One unit's part of them.
  void Forward(int unit, const MicroBatch& micro_batch);
  double Backward(int unit, const MicroBatch& micro_batch, float scale);
  double LossAfterForward(const MicroBatch& micro_batch);

  const Inventory& inventory() const { return inventory_; }
  int units() const { return static_cast<int>(params_.size()); }
  // Without what kernels work in.
  const MemoryMeter& meter() const { return meter_; }
  int64_t scratch_bytes() const { return scratch_meter_.current(Pool::kScratch); }

 private:
  struct Place {
    size_t unit;
    const Parameter* parameter;
  };
  Place Find(const std::string& name) const;
  void Forward(const MicroBatch& micro_batch);

  const Inventory inventory_;
  MemoryMeter scratch_meter_;
  const std::unique_ptr<Ops> ops_;
  MemoryMeter meter_;
  std::vector<std::vector<float>> params_;
  std::vector<std::vector<float>> grads_;
  std::vector<UnitParams> param_units_;
  std::vector<UnitGrads> grad_units_;
  std::unique_ptr<Model> model_;
};

// A small model of either architecture, tied or not, and how it is run; all drawn at random.
struct RandomModel {
  explicit RandomModel(std::mt19937_64& generator);

  ModelShape shape;
  int64_t batch = 0;
  int64_t tokens = 0;
  KeptActivations kept = KeptActivations::kEverything;
};

// Tokens and targets drawn at random; some targets count nothing.
struct RandomBatch {
  RandomBatch(int64_t batch, int64_t tokens, int64_t vocab, uint64_t seed);
  MicroBatch view() const;
  // Sequence b alone.
  MicroBatch sequence(int64_t b) const;

  int64_t batch;
  int64_t tokens;
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
};

}  // namespace sherd
