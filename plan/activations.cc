#include "plan/activations.h"

#include <algorithm>

namespace sherd {

// Per token: a block keeps its input and the stream behind its attention (C each), qkv (3C), the
// attention's output (C), the MLP before GELU (F), two norms' mean and deviation (4) and a
// log-sum-exp a head (H). Once a model: the head's input (C), its norm's mean and deviation (2), a
// working row of C, and one that is GELU's output, gradients inside a block and the logits in turn.
// Backward adds the gradient of the residual stream (C). Inference keeps a single block's, whose
// input is also the head's.
int64_t PredictActivationBytes(const ModelShape& shape, int64_t batch, int64_t tokens,
                               bool inference) {
  const int64_t channels = shape.hidden;
  const int64_t block = 6 * channels + shape.ffn + 4 + shape.heads;
  const int64_t widest = std::max({shape.ffn, 3 * channels, shape.vocab});
  const int64_t once = channels + 2 + widest;
  const int64_t blocks = inference ? 1 : shape.layers;
  const int64_t training = inference ? 0 : 2 * channels;
  return 4 * batch * tokens * (blocks * block + once + training);
}

}  // namespace sherd
