#pragma once

#include <cstdint>
#include <vector>

#include "kernels/memory.h"
#include "plan/activations.h"
#include "plan/model_shape.h"

namespace sherd {

// Shapes: B sequences of T tokens, N = B·T rows, C hidden, H heads and K heads of keys and values,
// each of D channels, F feed-forward, V vocabulary.

// What a block's backward reads of its forward. The outputs of both norms and of the MLP's
// activation are cheap and recomputed instead. Means are null where norms take none.
struct BlockActivations {
  float* norm_1_mean = nullptr;  // (N)
  float* norm_1_rstd = nullptr;  // (N)
  float* qkv = nullptr;          // (N, H + 2K, D)
  float* lse = nullptr;          // (B, H, T)
  float* attention = nullptr;    // (N, C)
  float* middle = nullptr;       // (N, C), the residual stream between attention and MLP
  float* norm_2_mean = nullptr;  // (N)
  float* norm_2_rstd = nullptr;  // (N)
  float* mlp = nullptr;          // (N, F) before GELU; (N, 2F) gate and up before SwiGLU
};

// What a model keeps in Pool::kActivations for micro-batches of up to `batch` × `tokens`. Unless
// everything is kept all layers share one block's activations; without a backward pass also one
// residual stream, and there is no gradient of it.
class Activations {
 public:
  Activations(const ModelShape& shape, int64_t batch, int64_t tokens, KeptActivations kept,
              MemoryMeter& meter);

  const BlockActivations& block(int64_t layer) const { return Slot(blocks_, layer); }
  // (N, C): the input of block `layer`; of the head for layer == layers.
  float* residual(int64_t layer) const { return Slot(residuals_, layer); }
  float* final_mean() const { return final_mean_; }  // (N)
  float* final_rstd() const { return final_rstd_; }  // (N)
  // (N, C): gradient of the residual stream. Null without a backward pass.
  float* d_residual() const { return d_residual_; }
  // (N, C): a norm's output or its gradient, an addend of the residual stream.
  float* narrow() const { return narrow_; }
  // (N, max(F, (H + 2K)·D)): the MLP's activation, the gradients inside a block.
  float* wide() const { return wide_or_logits_; }
  // (N, V). Shares storage with `wide`: no block computes while logits are alive.
  float* logits() const { return wide_or_logits_; }

 private:
  template <typename T>
  static const T& Slot(const std::vector<T>& slots, int64_t layer) {
    return slots.size() == 1 ? slots.front() : slots[static_cast<size_t>(layer)];
  }
  float* Allocate(int64_t elements);
  BlockActivations AllocateBlock(const ModelShape& shape, int64_t rows);

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
