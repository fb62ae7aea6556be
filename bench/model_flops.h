#pragma once

#include <cstdint>

#include "plan/model_shape.h"
#include "plan/parameters.h"

namespace sherd {

// Floating-point operations of one training step, forward and backward, that the model needs: 6 for
// each parameter of a matrix product and token (2 forward, 4 backward) and, of attention's two
// products, the half that the causal mask leaves: 6 · layers · seq_len · hidden a token.
// Recomputation and everything element-wise count nothing. Source: Chowdhery et al. 2022 (PaLM),
// appendix B, whose 12 · L · H · Q · T counts the masked half too. A tied embedding counts once,
// for the head; embeddings that are only looked up do not.
double TrainingFlops(const ModelShape& shape, const Inventory& inventory, int64_t seq_len,
                     int64_t tokens);

}  // namespace sherd
