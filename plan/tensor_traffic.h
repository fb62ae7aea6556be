#pragma once

#include <cstdint>

#include "plan/activations.h"
#include "plan/model_shape.h"
#include "plan/tensor_part.h"
#include "plan/wire.h"

namespace sherd {

// What a member of a tensor-parallel group sends to the others while it computes a unit; nothing in
// a group of one. Gradients that are summed over the group afterwards are not among it.
struct TensorTraffic {
  Wire all_gather;
  Wire reduce_scatter;
  Wire all_reduce;

  TensorTraffic& operator+=(const TensorTraffic& other);
  friend bool operator==(const TensorTraffic&, const TensorTraffic&) = default;
};

// Predictions, to the byte and message, for one micro-batch of `rows` rows (sequences times
// tokens). Units count as in the inventory: 0 the embedding, then the blocks, layers + 1 the head.
TensorTraffic ForwardTraffic(const ModelShape& shape, const ModelPart& part, int64_t unit,
                             int64_t rows);
// What is computed again of a block repeats its collectives; the last block's is not.
TensorTraffic BackwardTraffic(const ModelShape& shape, const ModelPart& part, int64_t unit,
                              int64_t rows, KeptActivations kept);
// Of an evaluation's loss, after the head's forward.
TensorTraffic LossTraffic(const ModelPart& part, int64_t rows);

}  // namespace sherd
