#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/activations.h"
#include "worker/model/model.h"

namespace sherd {

// Where a block's parameters start in its unit's flat buffer, in elements.
struct BlockOffsets {
  int64_t ln_1_w, ln_1_b;            // (C), (C)
  int64_t qkv_w, qkv_b;              // (3C, C), (3C): q rows, k rows, v rows
  int64_t attn_proj_w, attn_proj_b;  // (C, C), (C)
  int64_t ln_2_w, ln_2_b;            // (C), (C)
  int64_t fc_w, fc_b;                // (F, C), (F)
  int64_t mlp_proj_w, mlp_proj_b;    // (C, F), (C)
};

// GPT-2 (Radford et al. 2019) as published: learned positions, layer norms before attention and
// MLP, GELU by tanh, biases everywhere but in the head.
class Gpt2 final : public Model {
 public:
  Gpt2(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
       bool inference, Ops& ops, MemoryMeter& meter);

  void Forward(int unit, absl::Span<const UnitParams> params,
               const MicroBatch& micro_batch) override;
  double Loss(const MicroBatch& micro_batch) override;
  double Backward(int unit, absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                  const MicroBatch& micro_batch, float scale) override;
  const float* logits() const override { return activations_.logits(); }

 private:
  void EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch);
  void EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch);

  // One block: x → middle = x + attention(norm(x)) → y = middle + mlp(norm(middle)).
  void AttentionForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch);
  void MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch);
  // Both replace d_residual: the gradient of their output by that of their input.
  void MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                   const MicroBatch& micro_batch);
  void AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                         const MicroBatch& micro_batch);

  // (V, C): the head's own weights, or the token embedding.
  ConstParam HeadWeight(absl::Span<const UnitParams> params) const;
  void HeadForward(absl::Span<const UnitParams> params, const MicroBatch& micro_batch);
  double HeadBackward(absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                      const MicroBatch& micro_batch, float scale);

  AttentionShape AttentionShapeOf(const MicroBatch& micro_batch) const;

  const ModelShape shape_;
  const bool tied_;
  const int64_t capacity_rows_;
  const bool inference_;
  Ops& ops_;
  Activations activations_;
  int64_t wte_ = 0;
  int64_t wpe_ = 0;
  std::vector<BlockOffsets> blocks_;
  int64_t ln_f_w_ = 0;
  int64_t ln_f_b_ = 0;
  int64_t lm_head_w_ = 0;
};

}  // namespace sherd
