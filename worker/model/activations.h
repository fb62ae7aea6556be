#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/activations.h"
#include "plan/model_shape.h"
#include "plan/tensor_part.h"

namespace sherd {

// Shapes: B sequences of T tokens, N = B·T rows, R of them the member's rows of the residual stream
// (all but with sequence parallelism), C hidden. Of the member's part: H heads and K heads of keys
// and values, each of D channels, A = H·D, F feed-forward, V vocabulary. M rows of the head's
// chunk, S members of the group.

// What a block's backward reads of its forward. The outputs of both norms and of the MLP's
// activation are cheap and recomputed instead. Means are null where norms take none.
struct BlockActivations {
  float* norm_1_mean = nullptr;  // (R)
  float* norm_1_rstd = nullptr;  // (R)
  float* qkv = nullptr;          // (N, H + 2K, D)
  float* lse = nullptr;          // (B, H, T)
  float* attention = nullptr;    // (N, A)
  float* middle = nullptr;       // (R, C), the residual stream between attention and MLP
  float* norm_2_mean = nullptr;  // (R)
  float* norm_2_rstd = nullptr;  // (R)
  float* mlp = nullptr;          // (N, F) before GELU; (N, 2F) gate and up before SwiGLU
};

// Memory that activations may take until gradients are written there, which count it: the room that
// a step's gradients leave, and where these begin. No room without a backward pass.
struct SpareMemory {
  GradientRoom room;
  std::byte* gradients = nullptr;
};

// What a model keeps in Pool::kActivations for micro-batches of up to `batch` × `tokens`. Unless
// everything is kept all layers share one block's activations; without a backward pass also one
// residual stream, and there is no gradient of it.
class Activations {
 public:
  // What members sum or gather lies in `arena` (TensorArenaActivationBytes); null in a group of
  // one. What finds a place in `spare`, which outlives this, lies there and is not counted.
  Activations(const ModelShape& shape, const ModelPart& part, int64_t batch, int64_t tokens,
              KeptActivations kept, std::byte* arena, MemoryMeter& meter, SpareMemory spare = {});
  Activations(const Activations&) = delete;
  ~Activations() { meter_.Freed(Pool::kActivations, arena_bytes_); }

  const BlockActivations& block(int64_t layer) const { return Slot(blocks_, layer); }
  // (R, C): the input of block `layer`; of the head for layer == layers.
  float* residual(int64_t layer) const { return Slot(residuals_, layer); }
  float* final_mean() const { return final_mean_; }  // (R)
  float* final_rstd() const { return final_rstd_; }  // (R)
  // (R, C): gradient of the residual stream; in the arena with sequence parallelism. Null without a
  // backward pass.
  float* d_residual() const { return d_residual_; }
  // (N, C): the output of a norm, which a column-split layer reads; or the gathered gradient of the
  // residual stream.
  float* normed() const { return normed_; }
  // (N, C): the gradient of a norm's output, an addend of the residual stream; in the arena. The
  // same memory as `normed` in a group of one.
  float* narrow() const { return narrow_; }
  // (N, max(F, (H + 2K)·D)): the MLP's activation, the gradients inside a block.
  float* wide() const { return wide_; }
  // (M, V). May share storage with `wide`: no block computes while logits are alive.
  float* logits() const { return logits_; }
  // (M), in the arena, and (S, M). Null in a group of one.
  LogitStatistics* statistics() const { return statistics_; }
  LogitStatistics* gathered_statistics() const { return gathered_statistics_; }
  // Of the arena.
  int64_t arena_bytes() const { return arena_bytes_; }

 private:
  template <typename T>
  static const T& Slot(const std::vector<T>& slots, int64_t layer) {
    return slots.size() == 1 ? slots.front() : slots[static_cast<size_t>(layer)];
  }
  std::byte* AllocateBytes(int64_t bytes);
  float* Allocate(int64_t elements);
  // For what the backward of block `layer` is the last to read; of the head for layer == layers.
  float* AllocateFor(int64_t layer, int64_t elements);
  std::byte* TakeArena(int64_t bytes);
  void AllocateBlock(const ModelShape& shape, const ModelPart& part, int64_t layer, int64_t rows);
  void PlaceInArena(const ModelShape& shape, const ModelPart& part, int64_t rows, bool trains);

  MemoryMeter& meter_;
  SpareMemory spare_;
  std::byte* const arena_;
  int64_t arena_bytes_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<BlockActivations> blocks_;
  std::vector<float*> residuals_;
  float* final_mean_ = nullptr;
  float* final_rstd_ = nullptr;
  float* d_residual_ = nullptr;
  float* normed_ = nullptr;
  float* narrow_ = nullptr;
  float* wide_ = nullptr;
  float* logits_ = nullptr;
  LogitStatistics* statistics_ = nullptr;
  LogitStatistics* gathered_statistics_ = nullptr;
};

}  // namespace sherd
