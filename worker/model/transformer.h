#pragma once

#include <cstdint>

#include "worker/model/activations.h"
#include "worker/model/model.h"

namespace sherd {

// What the architectures have in common: the order of units and of a block's halves, the head, and
// what of a forward pass is computed again. A block is
//   x → middle = x + attention(norm(x)) → y = middle + mlp(norm(middle)).
class Transformer : public Model {
 public:
  void Forward(int unit, absl::Span<const UnitParams> params, const MicroBatch& micro_batch) final;
  double Loss(const MicroBatch& micro_batch) final;
  double Backward(int unit, absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                  const MicroBatch& micro_batch, float scale) final;
  const float* logits() const final { return activations_.logits(); }

 protected:
  // token_embedding: its offset in unit 0.
  Transformer(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
              KeptActivations kept, int64_t token_embedding, Ops& ops, MemoryMeter& meter);

  AttentionShape AttentionShapeOf(const MicroBatch& micro_batch) const;

  // residual(0) from the tokens.
  virtual void EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch) = 0;
  // From d_residual; a tied head has written its share of the token embedding's gradient before.
  virtual void EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch) = 0;
  // From the block's input to `middle`.
  virtual void AttentionForward(int64_t layer, const UnitParams& params,
                                const MicroBatch& micro_batch) = 0;
  // From `middle` to `mlp`, the last that backward reads.
  virtual void MlpForward(int64_t layer, const UnitParams& params,
                          const MicroBatch& micro_batch) = 0;
  // From `mlp` to the block's output.
  virtual void MlpOutput(int64_t layer, const UnitParams& params,
                         const MicroBatch& micro_batch) = 0;
  // Both replace d_residual: the gradient of their output by that of their input. They may spend
  // the block's activations.
  virtual void MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                           const MicroBatch& micro_batch) = 0;
  virtual void AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                                 const MicroBatch& micro_batch) = 0;
  // narrow = norm of the head's input; and from its gradient in narrow to d_residual.
  virtual void FinalNormForward(const UnitParams& params, int64_t rows) = 0;
  virtual void FinalNormBackward(const UnitParams& params, const UnitGrads& grads,
                                 int64_t rows) = 0;

  const ModelShape shape_;
  const bool tied_;
  const int64_t token_embedding_;
  Ops& ops_;
  const Activations activations_;

 private:
  // (V, C): the head's own weights, or the token embedding.
  ConstParam HeadWeight(absl::Span<const UnitParams> params) const;
  void HeadForward(absl::Span<const UnitParams> params, const MicroBatch& micro_batch);
  double HeadBackward(absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                      const MicroBatch& micro_batch, float scale);
  void BlockBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                     const MicroBatch& micro_batch);

  const int64_t capacity_rows_;
  const int64_t capacity_tokens_;
  const KeptActivations kept_;
  int64_t lm_head_ = 0;
};

}  // namespace sherd
