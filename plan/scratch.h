#pragma once

#include <cstdint>

#include "plan/model_shape.h"
#include "plan/tensor_part.h"

namespace sherd {

// Floats that the kernels work in: of each thread, and shared by all.
struct ScratchSizes {
  int64_t panel = 0, tile = 0, values = 0;
  int64_t shared = 0;

  int64_t Bytes(int threads) const { return 4 * (threads * (panel + tile + values) + shared); }
};

// Predicts, to the byte, what kernels keep in Pool::kScratch once a member of a tensor-parallel
// group has trained on a micro-batch of `batch` sequences of `tokens` tokens; `param_bytes` and
// `grad_bytes` an element. `part` is of `shape`.
ScratchSizes PredictScratch(const ModelShape& shape, const ModelPart& part, int64_t batch,
                            int64_t tokens, int64_t param_bytes, int64_t grad_bytes);

}  // namespace sherd
