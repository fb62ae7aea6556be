#include "worker/model/transformer.h"

#include "common/check.h"
#include "worker/model/gpt2.h"
#include "worker/model/llama.h"
#include "worker/model/unit_view.h"

namespace sherd {

Transformer::Transformer(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                         int64_t tokens, KeptActivations kept, int64_t token_embedding, Ops& ops,
                         MemoryMeter& meter)
    : shape_(shape),
      tied_(inventory.tied),
      token_embedding_(token_embedding),
      ops_(ops),
      activations_(shape, batch, tokens, kept, meter),
      capacity_rows_(batch * tokens),
      capacity_tokens_(tokens),
      kept_(kept) {
  SHERD_CHECK(tokens <= shape.context);
  if (!tied_) lm_head_ = OffsetOf(inventory.units.back(), "lm_head.weight");
}

void Transformer::Forward(int unit, absl::Span<const UnitParams> params,
                          const MicroBatch& micro_batch) {
  SHERD_CHECK(RowsOf(micro_batch) <= capacity_rows_ && micro_batch.tokens <= capacity_tokens_);
  if (unit > shape_.layers) return HeadForward(params, micro_batch);
  const UnitParams& own = params[static_cast<size_t>(unit)];
  if (unit == 0) return EmbeddingForward(own, micro_batch);
  AttentionForward(unit - 1, own, micro_batch);
  MlpForward(unit - 1, own, micro_batch);
  MlpOutput(unit - 1, own, micro_batch);
}

double Transformer::Backward(int unit, absl::Span<const UnitParams> params,
                             absl::Span<const UnitGrads> grads, const MicroBatch& micro_batch,
                             float scale) {
  SHERD_CHECK(kept_ != KeptActivations::kNothing);
  const auto index = static_cast<size_t>(unit);
  if (unit > shape_.layers) return HeadBackward(params, grads, micro_batch, scale);
  if (unit == 0) {
    EmbeddingBackward(grads[0], micro_batch);
  } else {
    BlockBackward(unit - 1, params[index], grads[index], micro_batch);
  }
  return 0;
}

void Transformer::BlockBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                                const MicroBatch& micro_batch) {
  // The last block's are still there: nothing has run since but the head.
  if (kept_ == KeptActivations::kBlockInputs && layer != shape_.layers - 1) {
    AttentionForward(layer, params, micro_batch);
    MlpForward(layer, params, micro_batch);
  }
  MlpBackward(layer, params, grads, micro_batch);
  AttentionBackward(layer, params, grads, micro_batch);
}

double Transformer::Loss(const MicroBatch& micro_batch) {
  return ops_.CrossEntropy(activations_.logits(), micro_batch.targets, RowsOf(micro_batch),
                           shape_.vocab);
}

AttentionShape Transformer::AttentionShapeOf(const MicroBatch& micro_batch) const {
  return {micro_batch.batch, micro_batch.tokens, shape_.heads, shape_.kv_heads, shape_.head_size()};
}

ConstParam Transformer::HeadWeight(absl::Span<const UnitParams> params) const {
  return tied_ ? At(params.front(), token_embedding_) : At(params.back(), lm_head_);
}

void Transformer::HeadForward(absl::Span<const UnitParams> params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  FinalNormForward(params.back(), rows);
  // (N, C); read again by HeadBackward
  ops_.LinearForward(activations_.narrow(), HeadWeight(params), kNoParam, activations_.logits(),
                     rows, shape_.hidden, shape_.vocab);
}

double Transformer::HeadBackward(absl::Span<const UnitParams> params,
                                 absl::Span<const UnitGrads> grads, const MicroBatch& micro_batch,
                                 float scale) {
  const int64_t rows = RowsOf(micro_batch);
  float* logits = activations_.logits();  // (N, V), replaced by its gradient
  float* narrow = activations_.narrow();  // (N, C): the norm of HeadForward, then its gradient
  const double loss =
      ops_.CrossEntropyBackward(logits, micro_batch.targets, scale, rows, shape_.vocab);
  const GradOut d_weight = tied_ ? At(grads.front(), token_embedding_) : At(grads.back(), lm_head_);
  ops_.LinearBackwardWeight(logits, narrow, d_weight, kNoGrad, rows, shape_.hidden, shape_.vocab);
  ops_.LinearBackwardInput(logits, HeadWeight(params), narrow, rows, shape_.hidden, shape_.vocab,
                           /*accumulate=*/false);
  FinalNormBackward(params.back(), grads.back(), rows);
  return loss;
}

std::unique_ptr<Model> MakeModel(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                                 int64_t tokens, KeptActivations kept, Ops& ops,
                                 MemoryMeter& meter) {
  switch (shape.arch) {
    case Architecture::kGpt2:
      return std::make_unique<Gpt2>(shape, inventory, batch, tokens, kept, ops, meter);
    case Architecture::kLlama:
      return std::make_unique<Llama>(shape, inventory, batch, tokens, kept, ops, meter);
  }
  SHERD_CHECK(false && "unknown architecture");
  return nullptr;
}

}  // namespace sherd
