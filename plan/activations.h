#pragma once

#include <cstdint>

#include "plan/model_shape.h"

namespace sherd {

// Predicts, to the byte, what a model keeps in Pool::kActivations for micro-batches of `batch`
// sequences of `tokens` tokens; less without a backward pass (`inference`).
int64_t PredictActivationBytes(const ModelShape& shape, int64_t batch, int64_t tokens,
                               bool inference);

}  // namespace sherd
