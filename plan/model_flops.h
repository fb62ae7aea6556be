#pragma once

#include <cstdint>

#include "plan/model_shape.h"
#include "plan/parameters.h"

namespace sherd {

// Floating-point operations that the forward pass of a unit of the inventory, whole or a member's
// part of it, needs for `tokens` tokens in sequences
// of `seq_len`: 2 for each parameter of a matrix product and token and, of attention's two
// products, the half that the causal mask leaves: 2 · seq_len · hidden a token. Everything
// element-wise counts nothing, nor do embeddings that are only looked up; a tied embedding counts
// for the head. Source: Chowdhery et al. 2022 (PaLM), appendix B, whose 12 · L · H · Q · T a token
// and step counts the masked half too.
double ForwardFlops(const ModelShape& shape, const Inventory& inventory, const Unit& unit,
                    int64_t seq_len, int64_t tokens);

// What is computed again of a block before its backward.
double RecomputedFlops(const ModelShape& shape, const Inventory& inventory, const Unit& unit,
                       int64_t seq_len, int64_t tokens);

// Backward multiplies twice for each product of forward: by the weights and by the inputs.
inline constexpr double kBackwardPerForward = 2.0;

// Of one training step, forward of all units and backward down to the first that is trained,
// without recomputation.
double TrainingFlops(const ModelShape& shape, const Inventory& inventory, int64_t seq_len,
                     int64_t tokens);

}  // namespace sherd
