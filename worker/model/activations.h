#pragma once

#include <cstdint>
#include <vector>

#include "kernels/memory.h"
#include "plan/model_shape.h"

namespace sherd {

// Shapes: B sequences of T tokens, N = B·T rows, C hidden, H heads, F feed-forward, V vocabulary.

// What a block's backward reads of its forward. The outputs of both layer norms and of GELU are
// cheap and recomputed instead.
struct BlockActivations {
  float* ln_1_mean = nullptr;  // (N)
  float* ln_1_rstd = nullptr;  // (N)
  float* qkv = nullptr;        // (N, 3C)
  float* lse = nullptr;        // (B, H, T)
  float* attention = nullptr;  // (N, C)
  float* middle = nullptr;     // (N, C), the residual stream between attention and MLP
  float* ln_2_mean = nullptr;  // (N)
  float* ln_2_rstd = nullptr;  // (N)
  float* fc = nullptr;         // (N, F), before GELU
};

// Everything a model keeps in Pool::kActivations for micro-batches of up to `batch` × `tokens`. For
// inference all layers share one block's activations and one residual stream, and there is no
// gradient of it.
class Activations {
 public:
  Activations(const ModelShape& shape, int64_t batch, int64_t tokens, bool inference,
              MemoryMeter& meter);

  const BlockActivations& block(int64_t layer) const { return blocks_[SlotOf(layer)]; }
  // (N, C): the input of block `layer`; of the head for layer == layers.
  float* residual(int64_t layer) const { return residuals_[SlotOf(layer)]; }
  float* final_mean() const { return final_mean_; }  // (N)
  float* final_rstd() const { return final_rstd_; }  // (N)
  // (N, C): gradient of the residual stream. Null for inference.
  float* d_residual() const { return d_residual_; }
  // (N, C): a layer norm's output or its gradient, an addend of the residual stream.
  float* narrow() const { return narrow_; }
  // (N, max(F, 3C)): GELU's output, the gradients inside a block.
  float* wide() const { return wide_or_logits_; }
  // (N, V). Shares storage with `wide`: no block computes while logits are alive.
  float* logits() const { return wide_or_logits_; }

 private:
  size_t SlotOf(int64_t layer) const { return inference_ ? 0 : static_cast<size_t>(layer); }
  float* Allocate(int64_t elements);
  BlockActivations AllocateBlock(const ModelShape& shape, int64_t rows);

  const bool inference_;
  MemoryMeter& meter_;
  std::vector<Buffer> buffers_;
  std::vector<BlockActivations> blocks_;
  std::vector<float*> residuals_;
  float* final_mean_ = nullptr;
  float* final_rstd_ = nullptr;
  float* d_residual_ = nullptr;
  float* narrow_ = nullptr;
  float* wide_or_logits_ = nullptr;
};

}  // namespace sherd
