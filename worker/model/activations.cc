#include "worker/model/activations.h"

#include <algorithm>

namespace sherd {

Activations::Activations(const ModelShape& shape, int64_t batch, int64_t tokens,
                         KeptActivations kept, MemoryMeter& meter)
    : meter_(meter) {
  const int64_t rows = batch * tokens;
  const bool trains = kept != KeptActivations::kNothing;
  const int64_t blocks = kept == KeptActivations::kEverything ? shape.layers : 1;
  const int64_t residuals = trains ? shape.layers + 1 : 1;
  for (int64_t i = 0; i < blocks; ++i) blocks_.push_back(AllocateBlock(shape, rows));
  for (int64_t i = 0; i < residuals; ++i) residuals_.push_back(Allocate(rows * shape.hidden));
  if (shape.arch == Architecture::kGpt2) final_mean_ = Allocate(rows);
  final_rstd_ = Allocate(rows);
  if (trains) d_residual_ = Allocate(rows * shape.hidden);
  narrow_ = Allocate(rows * shape.hidden);
  wide_or_logits_ = Allocate(rows * std::max({shape.ffn, shape.qkv_channels(), shape.vocab}));
}

float* Activations::Allocate(int64_t elements) {
  buffers_.emplace_back(meter_, Pool::kActivations, elements * static_cast<int64_t>(sizeof(float)));
  return buffers_.back().as<float>();
}

BlockActivations Activations::AllocateBlock(const ModelShape& shape, int64_t rows) {
  const bool gpt2 = shape.arch == Architecture::kGpt2;
  BlockActivations block;
  if (gpt2) block.norm_1_mean = Allocate(rows);
  block.norm_1_rstd = Allocate(rows);
  block.qkv = Allocate(rows * shape.qkv_channels());
  block.lse = Allocate(rows * shape.heads);
  block.attention = Allocate(rows * shape.hidden);
  block.middle = Allocate(rows * shape.hidden);
  if (gpt2) block.norm_2_mean = Allocate(rows);
  block.norm_2_rstd = Allocate(rows);
  block.mlp = Allocate(rows * (gpt2 ? shape.ffn : 2 * shape.ffn));
  return block;
}

}  // namespace sherd
