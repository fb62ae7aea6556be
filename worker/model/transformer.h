#pragma once

#include <cstdint>

#include "worker/model/activations.h"
#include "worker/model/model.h"
#include "worker/model/residual_stream.h"
#include "worker/model/vocabulary_head.h"

namespace sherd {

// What the architectures have in common: the order of units and of a block's halves, the layers
// that a tensor-parallel group splits, the head, and what of a forward pass is computed again. A
// block is
//   x → middle = x + attention(norm(x)) → y = middle + mlp(norm(middle)).
// Both halves are a column-split layer, something that each member computes of its own channels,
// and a row-split layer whose bias is added once. Shapes as in activations.h.
class Transformer : public Model {
 public:
  void Forward(int unit, absl::Span<const UnitParams> params, const MicroBatch& micro_batch) final;
  double Loss(absl::Span<const UnitParams> params, const MicroBatch& micro_batch) final;
  const float* Logits(absl::Span<const UnitParams> params, int64_t first_row, int64_t rows) final;
  double Backward(int unit, absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                  const MicroBatch& micro_batch, float scale) final;

 protected:
  // token_embedding: its offset in unit 0.
  Transformer(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
              KeptActivations kept, int64_t token_embedding, Ops& ops, MemoryMeter& meter,
              TensorGroup* tensor, const LossOptions& loss, SpareMemory spare);

  AttentionShape AttentionShapeOf(const MicroBatch& micro_batch) const;

  // A row-split layer of w (C, in) and what is added to its output: out (R, C) = sum over members
  // of x (N, in) · wᵀ, + bias + residual. Spends `narrow`.
  void RowLayerForward(const float* x, ConstParam w, ConstParam bias, const float* residual,
                       float* out, int64_t rows, int64_t in);
  // Its gradients from that of the residual stream (FinishGradient). dx (N, in) may be x; it is
  // that of `pre` (N, in) where x is the GELU of it, unless that is null.
  void RowLayerBackward(const float* x, ConstParam w, GradOut dw, GradOut dbias, float* dx,
                        int64_t rows, int64_t in, const float* pre = nullptr);
  // A column-split layer's gradients from dy (N, out) and `normed`; returns the gradient of the
  // norm's output (R, C). Spends `narrow`.
  float* ColumnLayerBackward(const float* dy, ConstParam w, GradOut dw, GradOut dbias, int64_t rows,
                             int64_t out);

  // What follows the look-up of token embeddings, from and to rows of the residual stream (R, C);
  // `embedded` may be `out`.
  virtual void PositionsForward(const UnitParams& params, const float* embedded, float* out,
                                const MicroBatch& micro_batch) = 0;
  // From d_residual.
  virtual void PositionsBackward(const UnitGrads& grads, const MicroBatch& micro_batch) = 0;
  // From the block's input to `middle`.
  virtual void AttentionForward(int64_t layer, const UnitParams& params,
                                const MicroBatch& micro_batch) = 0;
  // From `middle` to `mlp`, the last that backward reads; `output_follows`: it is a part of the
  // forward pass, and MlpOutput comes next.
  virtual void MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch,
                          bool output_follows) = 0;
  // From there to the block's output.
  virtual void MlpOutput(int64_t layer, const UnitParams& params,
                         const MicroBatch& micro_batch) = 0;
  // Both replace d_residual: the gradient of their output by that of their input. They may spend
  // the block's activations.
  virtual void MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                           const MicroBatch& micro_batch) = 0;
  virtual void AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                                 const MicroBatch& micro_batch) = 0;
  // y (R, C) = norm of the head's input; and from its gradient to d_residual.
  virtual void FinalNormForward(const UnitParams& params, float* y, int64_t stream_rows) = 0;
  virtual void FinalNormBackward(const UnitParams& params, const UnitGrads& grads, const float* dy,
                                 int64_t stream_rows) = 0;

  const ModelShape shape_;
  const ModelPart part_;
  const bool tied_;
  const int64_t token_embedding_;
  Ops& ops_;
  const Activations activations_;
  ResidualStream stream_;

 private:
  // (V, C): the head's own weights, or the token embedding.
  ConstParam HeadWeight(absl::Span<const UnitParams> params) const;
  void EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch);
  // A tied head has written its share of the token embedding's gradient before.
  void EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch);
  void HeadForward(absl::Span<const UnitParams> params, const MicroBatch& micro_batch);
  double HeadBackward(absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                      const MicroBatch& micro_batch, float scale);
  void BlockBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                     const MicroBatch& micro_batch);
  // The first of the token embedding's rows that the member stores, in the vocabulary.
  int64_t FirstToken() const { return part_.place.index * part_.vocab; }

  const int64_t capacity_rows_;
  const int64_t capacity_tokens_;
  const KeptActivations kept_;
  int64_t lm_head_ = 0;
  VocabularyHead head_;
};

}  // namespace sherd
