#include "worker/model/activations.h"

#include <algorithm>

namespace sherd {

Activations::Activations(const ModelShape& shape, int64_t batch, int64_t tokens, bool inference,
                         MemoryMeter& meter)
    : inference_(inference), meter_(meter) {
  const int64_t rows = batch * tokens;
  const int64_t kept_blocks = inference ? 1 : shape.layers;
  const int64_t kept_residuals = inference ? 1 : shape.layers + 1;
  for (int64_t i = 0; i < kept_blocks; ++i) blocks_.push_back(AllocateBlock(shape, rows));
  for (int64_t i = 0; i < kept_residuals; ++i) residuals_.push_back(Allocate(rows * shape.hidden));
  final_mean_ = Allocate(rows);
  final_rstd_ = Allocate(rows);
  if (!inference) d_residual_ = Allocate(rows * shape.hidden);
  narrow_ = Allocate(rows * shape.hidden);
  wide_or_logits_ = Allocate(rows * std::max({shape.ffn, 3 * shape.hidden, shape.vocab}));
}

float* Activations::Allocate(int64_t elements) {
  buffers_.emplace_back(meter_, Pool::kActivations, elements * static_cast<int64_t>(sizeof(float)));
  return buffers_.back().as<float>();
}

BlockActivations Activations::AllocateBlock(const ModelShape& shape, int64_t rows) {
  BlockActivations block;
  block.ln_1_mean = Allocate(rows);
  block.ln_1_rstd = Allocate(rows);
  block.qkv = Allocate(rows * 3 * shape.hidden);
  block.lse = Allocate(rows * shape.heads);
  block.attention = Allocate(rows * shape.hidden);
  block.middle = Allocate(rows * shape.hidden);
  block.ln_2_mean = Allocate(rows);
  block.ln_2_rstd = Allocate(rows);
  block.fc = Allocate(rows * shape.ffn);
  return block;
}

}  // namespace sherd
