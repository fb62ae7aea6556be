#pragma once

#include <cstdint>

#include "plan/model_shape.h"

namespace sherd {

// Floats that the kernels work in: of each thread, and shared by all.
struct ScratchSizes {
  int64_t panel = 0, tile = 0, values = 0;
  int64_t shared = 0;

  int64_t Bytes(int threads) const { return 4 * (threads * (panel + tile + values) + shared); }
};

// Predicts, to the byte, what kernels keep in Pool::kScratch once they have trained on a
// micro-batch of `batch` sequences of `tokens` tokens; `param_bytes` and `grad_bytes` an element.
ScratchSizes PredictScratch(const ModelShape& shape, int64_t batch, int64_t tokens,
                            int64_t param_bytes, int64_t grad_bytes);

}  // namespace sherd
