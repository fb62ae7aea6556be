#pragma once

#include <cstdint>

#include "plan/model_shape.h"

namespace sherd {

// What of a forward pass is kept for the backward pass.
enum class KeptActivations {
  kEverything,   // all that backward reads of every block
  kBlockInputs,  // every block's input; backward computes the rest again, a block at a time
  kNothing,      // there is no backward pass
};

// Predicts, to the byte, what a model keeps in Pool::kActivations for micro-batches of `batch`
// sequences of `tokens` tokens.
int64_t PredictActivationBytes(const ModelShape& shape, int64_t batch, int64_t tokens,
                               KeptActivations kept);

}  // namespace sherd
