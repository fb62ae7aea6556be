#include "worker/model/transformer.h"

#include <utility>

#include "common/check.h"
#include "worker/model/gpt2.h"
#include "worker/model/llama.h"
#include "worker/model/unit_view.h"

namespace sherd {

Transformer::Transformer(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                         int64_t tokens, KeptActivations kept, int64_t token_embedding, Ops& ops,
                         MemoryMeter& meter, TensorGroup* tensor, const LossOptions& loss,
                         SpareMemory spare)
    : shape_(shape),
      part_(inventory.part),
      tied_(inventory.tied),
      token_embedding_(token_embedding),
      ops_(ops),
      activations_(shape, part_, batch, tokens, kept, tensor == nullptr ? nullptr : tensor->arena(),
                   meter, std::move(spare)),
      stream_(part_, shape.hidden, activations_, tensor),
      capacity_rows_(batch * tokens),
      capacity_tokens_(tokens),
      kept_(kept),
      head_(part_, shape, loss, activations_, ops, stream_, tensor) {
  SHERD_CHECK(tokens <= shape.context);
  SHERD_CHECK(tensor == nullptr
                  ? part_.place.degree == 1
                  : tensor->size() == part_.place.degree && tensor->rank() == part_.place.index);
  if (!tied_) lm_head_ = OffsetOf(inventory.units.back(), "lm_head.weight");
}

void Transformer::Forward(int unit, absl::Span<const UnitParams> params,
                          const MicroBatch& micro_batch) {
  SHERD_CHECK(RowsOf(micro_batch) <= capacity_rows_ && micro_batch.tokens <= capacity_tokens_);
  if (unit > shape_.layers) return HeadForward(params, micro_batch);
  const UnitParams& own = params[static_cast<size_t>(unit)];
  if (unit == 0) return EmbeddingForward(own, micro_batch);
  AttentionForward(unit - 1, own, micro_batch);
  MlpForward(unit - 1, own, micro_batch, /*output_follows=*/true);
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
    MlpForward(layer, params, micro_batch, /*output_follows=*/false);
  }
  MlpBackward(layer, params, grads, micro_batch);
  AttentionBackward(layer, params, grads, micro_batch);
}

double Transformer::Loss(absl::Span<const UnitParams> params, const MicroBatch& micro_batch) {
  return head_.Loss(HeadWeight(params), micro_batch);
}

const float* Transformer::Logits(absl::Span<const UnitParams> params, int64_t first_row,
                                 int64_t rows) {
  SHERD_CHECK(part_.place.degree == 1 && rows <= HeadChunkRows(part_, capacity_rows_));
  return head_.Logits(HeadWeight(params), first_row, rows);
}

AttentionShape Transformer::AttentionShapeOf(const MicroBatch& micro_batch) const {
  return {micro_batch.batch, micro_batch.tokens, part_.heads, part_.kv_heads, part_.head_size};
}

void Transformer::RowLayerForward(const float* x, ConstParam w, ConstParam bias,
                                  const float* residual, float* out, int64_t rows, int64_t in) {
  ops_.LinearForward(x, w, kNoParam, activations_.narrow(), rows, in, shape_.hidden);
  stream_.StartSum(rows);
  ops_.ResidualForward(stream_.FinishSum(), bias, residual, out, stream_.Rows(rows), shape_.hidden);
}

void Transformer::RowLayerBackward(const float* x, ConstParam w, GradOut dw, GradOut dbias,
                                   float* dx, int64_t rows, int64_t in, const float* pre) {
  const float* d_out = stream_.FinishGradient();  // (N, C)
  // The bias is added to the member's rows alone.
  const bool all_rows = !part_.place.sequence;
  ops_.LinearBackwardWeight(d_out, x, dw, all_rows ? dbias : kNoGrad, rows, in, shape_.hidden);
  if (!all_rows && dbias.data != nullptr) {
    ops_.BiasBackward(activations_.d_residual(), dbias, stream_.Rows(rows), shape_.hidden);
  }
  if (pre != nullptr) {
    ops_.LinearGeluBackwardInput(d_out, w, pre, dx, rows, in, shape_.hidden);
  } else {
    ops_.LinearBackwardInput(d_out, w, dx, rows, in, shape_.hidden, /*accumulate=*/false);
  }
}

float* Transformer::ColumnLayerBackward(const float* dy, ConstParam w, GradOut dw, GradOut dbias,
                                        int64_t rows, int64_t out) {
  const auto write_weight = [&] {
    ops_.LinearBackwardWeight(dy, activations_.normed(), dw, dbias, rows, shape_.hidden, out);
  };
  // Without a group the gradient of `normed` takes its place; in one the weight's gradient is
  // computed while the sum is under way.
  const bool grouped = part_.place.degree > 1;
  if (!grouped) write_weight();
  ops_.LinearBackwardInput(dy, w, activations_.narrow(), rows, shape_.hidden, out,
                           /*accumulate=*/false);
  stream_.StartSum(rows);
  if (grouped) write_weight();
  return stream_.FinishSum();
}

void Transformer::EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const bool grouped = part_.place.degree > 1;
  float* embedded = grouped ? activations_.narrow() : activations_.residual(0);  // (N, C)
  ops_.EmbeddingForward(micro_batch.inputs, At(params, token_embedding_), FirstToken(), part_.vocab,
                        embedded, rows, shape_.hidden);
  if (grouped) {
    stream_.StartSum(rows);
    embedded = stream_.FinishSum();
  }
  PositionsForward(params, embedded, activations_.residual(0), micro_batch);
}

void Transformer::EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  stream_.StartGradient(rows);
  PositionsBackward(grads, micro_batch);
  ops_.EmbeddingBackward(micro_batch.inputs, stream_.FinishGradient(),
                         At(grads, token_embedding_, /*accumulate=*/tied_), FirstToken(),
                         part_.vocab, rows, shape_.hidden);
}

ConstParam Transformer::HeadWeight(absl::Span<const UnitParams> params) const {
  return tied_ ? At(params.front(), token_embedding_) : At(params.back(), lm_head_);
}

void Transformer::HeadForward(absl::Span<const UnitParams> params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  FinalNormForward(params.back(), stream_.NormOutput(rows), stream_.Rows(rows));
  stream_.GatherNorm(rows);
}

double Transformer::HeadBackward(absl::Span<const UnitParams> params,
                                 absl::Span<const UnitGrads> grads, const MicroBatch& micro_batch,
                                 float scale) {
  const GradOut d_weight = tied_ ? At(grads.front(), token_embedding_) : At(grads.back(), lm_head_);
  const double loss = head_.Backward(HeadWeight(params), d_weight, micro_batch, scale);
  FinalNormBackward(params.back(), grads.back(), stream_.FinishSum(),
                    stream_.Rows(RowsOf(micro_batch)));
  return loss;
}

std::unique_ptr<Model> MakeModel(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                                 int64_t tokens, KeptActivations kept, Ops& ops, MemoryMeter& meter,
                                 TensorGroup* tensor, const LossOptions& loss, SpareMemory spare) {
  switch (shape.arch) {
    case Architecture::kGpt2:
      return std::make_unique<Gpt2>(shape, inventory, batch, tokens, kept, ops, meter, tensor, loss,
                                    std::move(spare));
    case Architecture::kLlama:
      return std::make_unique<Llama>(shape, inventory, batch, tokens, kept, ops, meter, tensor,
                                     loss, std::move(spare));
  }
  SHERD_CHECK(false && "unknown architecture");
  return nullptr;
}

}  // namespace sherd
