#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/activations.h"
#include "plan/model_shape.h"
#include "plan/parameters.h"

namespace sherd {

// A unit's flat buffers, as the inventory lays them out.
struct UnitParams {
  const void* data = nullptr;  // (unit elements)
  DType dtype = DType::kF32;
};
struct UnitGrads {
  void* data = nullptr;  // (unit elements)
  DType dtype = DType::kF32;
};

// One micro-batch: B sequences of T tokens and the token that follows each. Negative targets count
// nothing.
struct MicroBatch {
  int64_t batch = 0;                 // B
  int64_t tokens = 0;                // T
  const int32_t* inputs = nullptr;   // (B, T)
  const int32_t* targets = nullptr;  // (B, T)
};

// A transformer executed unit by unit, so that somebody else decides when a unit's parameters
// exist. Holds the activations of one micro-batch, counted in Pool::kActivations. Forward runs
// units 0…n−1, Backward n−1…0. Not thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // `params` has an entry a unit; only the unit's own must be set, and unit 0's for a tied head.
  // The head's Forward ends in logits that its Backward or Loss consumes.
  virtual void Forward(int unit, absl::Span<const UnitParams> params,
                       const MicroBatch& micro_batch) = 0;
  // Sum of token losses in nats after the head's Forward, for evaluation.
  virtual double Loss(const MicroBatch& micro_batch) = 0;
  // Writes (overwrites) the unit's gradients of scale · (sum of token losses); a tied head writes
  // the token embedding's share into unit 0's buffer, to which unit 0's Backward adds. The head
  // returns the unscaled sum of token losses, other units 0.
  virtual double Backward(int unit, absl::Span<const UnitParams> params,
                          absl::Span<const UnitGrads> grads, const MicroBatch& micro_batch,
                          float scale) = 0;
  // The logits (rows, V) of the head's last Forward.
  virtual const float* logits() const = 0;
};

// The model of shape.arch, with room for micro-batches of up to `batch` sequences of up to `tokens`
// tokens. Backward gives the same bits whatever is `kept`, and may not be called when that is
// kNothing.
std::unique_ptr<Model> MakeModel(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                                 int64_t tokens, KeptActivations kept, Ops& ops,
                                 MemoryMeter& meter);

}  // namespace sherd
