#include "plan/activations.h"

#include <algorithm>

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = 4;

// What a block's backward reads beside the block's input, in numbers a token: queries, keys and
// values, the attention's output (C) and log-sum-exp a head (H), the stream behind the attention
// (C), two norms' deviations, and with GPT-2 means, and the MLP before GELU (F) or gate and up
// (2F).
int64_t BlockNumbers(const ModelShape& shape) {
  const bool llama = shape.arch == Architecture::kLlama;
  return shape.qkv_channels() + 2 * shape.hidden + shape.heads +
         (llama ? 2 + 2 * shape.ffn : 4 + shape.ffn);
}

}  // namespace

// Beside the blocks, per token: the input of every block and of the head (C each), the last norm's
// deviation, and with GPT-2 mean, a working row of C, and one that is the MLP's activation,
// gradients inside a block and the logits in turn. Backward adds the gradient of the residual
// stream (C). Without it all blocks and the head share one input. Llama's rotary table has a head's
// numbers for every position of a sequence.
int64_t PredictActivationBytes(const ModelShape& shape, int64_t batch, int64_t tokens,
                               KeptActivations kept) {
  const bool llama = shape.arch == Architecture::kLlama;
  const bool trains = kept != KeptActivations::kNothing;
  const int64_t blocks = kept == KeptActivations::kEverything ? shape.layers : 1;
  const int64_t inputs = trains ? shape.layers + 1 : 1;
  const int64_t widest = std::max({shape.ffn, shape.qkv_channels(), shape.vocab});
  const int64_t token_numbers = blocks * BlockNumbers(shape) + inputs * shape.hidden +
                                (llama ? 1 : 2) + shape.hidden + widest +
                                (trains ? shape.hidden : 0);
  const int64_t table_numbers = llama ? tokens * shape.head_size() : 0;
  return kFloatBytes * (batch * tokens * token_numbers + table_numbers);
}

}  // namespace sherd
