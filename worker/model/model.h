#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/model_shape.h"
#include "plan/parameters.h"
#include "worker/model/activations.h"
#include "worker/model/tensor_group.h"

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
// exist; or a tensor-parallel group's member's part of it. Holds the activations of one
// micro-batch, counted in Pool::kActivations. Forward runs units 0…n−1, Backward n−1…0.
//
// All members of a group make the same calls with the same micro-batch, and every call returns what
// it would for the whole model. Each may wait for the others; after an error of the communicator
// results are garbage (tensor_group.h). Not thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // `params` has an entry a unit; only the unit's own must be set, and unit 0's for a tied head.
  // What Loss, Logits and Backward read of the head is there after its Forward.
  virtual void Forward(int unit, absl::Span<const UnitParams> params,
                       const MicroBatch& micro_batch) = 0;
  // Sum of token losses in nats after the head's Forward, for evaluation. `params` as for the head.
  virtual double Loss(absl::Span<const UnitParams> params, const MicroBatch& micro_batch) = 0;
  // The logits (rows, V) of rows [first_row, first_row + rows) of the head's last Forward, until
  // any other call; rows <= HeadChunkRows (plan/activations.h) of the rows that there is room for.
  // `params` as for the head. Of a whole model only.
  virtual const float* Logits(absl::Span<const UnitParams> params, int64_t first_row,
                              int64_t rows) = 0;
  // Writes (overwrites) the unit's gradients of scale · (sum of token losses, with what the model's
  // loss options add); a tied head writes
  // the token embedding's share into unit 0's buffer, to which unit 0's Backward adds. Of partial
  // gradients (plan/parameters.h) it is the member's share. The head returns the unscaled sum of
  // token losses, other units 0.
  virtual double Backward(int unit, absl::Span<const UnitParams> params,
                          absl::Span<const UnitGrads> grads, const MicroBatch& micro_batch,
                          float scale) = 0;
};

// The model of shape.arch, or the part of it that the inventory describes, with room for
// micro-batches of up to `batch` sequences of up to `tokens` tokens. Backward gives the same bits
// whatever is `kept`, and may not be called when that is kNothing. `tensor` is the member's group,
// nullptr exactly when inventory.part.place.degree is 1; it outlives the model. So does `spare`,
// and between a unit's Forward and its Backward nobody but the model writes there.
std::unique_ptr<Model> MakeModel(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                                 int64_t tokens, KeptActivations kept, Ops& ops, MemoryMeter& meter,
                                 TensorGroup* tensor = nullptr, const LossOptions& loss = {},
                                 SpareMemory spare = {});

}  // namespace sherd
