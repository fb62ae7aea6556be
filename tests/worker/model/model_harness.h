#pragma once

#include <cstdint>
#include <memory>
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
  ModelHarness(const ModelShape& shape, int64_t batch, int64_t tokens,
               KeptActivations kept = KeptActivations::kEverything, int threads = 1);

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

  const Inventory& inventory() const { return inventory_; }
  const Model& model() const { return *model_; }
  const MemoryMeter& meter() const { return meter_; }

 private:
  struct Place {
    size_t unit;
    const Parameter* parameter;
  };
  Place Find(const std::string& name) const;
  void Forward(const MicroBatch& micro_batch);

  const Inventory inventory_;
  const std::unique_ptr<Ops> ops_;
  MemoryMeter meter_;
  std::vector<std::vector<float>> params_;
  std::vector<std::vector<float>> grads_;
  std::vector<UnitParams> param_units_;
  std::vector<UnitGrads> grad_units_;
  std::unique_ptr<Model> model_;
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
