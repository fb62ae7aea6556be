#include "worker/model/gpt2.h"

#include "absl/strings/string_view.h"
#include "common/check.h"

namespace sherd {
namespace {

// The offset of the unit's parameter "PREFIX.suffix", or of the one named `suffix`.
int64_t OffsetOf(const Unit& unit, absl::string_view suffix) {
  const std::string name =
      unit.kind == UnitKind::kBlock ? unit.name + "." + std::string(suffix) : std::string(suffix);
  for (const Parameter& parameter : unit.parameters) {
    if (parameter.name == name) return parameter.offset;
  }
  SHERD_CHECK(false && "the inventory lacks a parameter of the model");
  return -1;
}

BlockOffsets BlockOffsetsOf(const Unit& unit) {
  return {.ln_1_w = OffsetOf(unit, "ln_1.weight"),
          .ln_1_b = OffsetOf(unit, "ln_1.bias"),
          .qkv_w = OffsetOf(unit, "attn.c_attn.weight"),
          .qkv_b = OffsetOf(unit, "attn.c_attn.bias"),
          .attn_proj_w = OffsetOf(unit, "attn.c_proj.weight"),
          .attn_proj_b = OffsetOf(unit, "attn.c_proj.bias"),
          .ln_2_w = OffsetOf(unit, "ln_2.weight"),
          .ln_2_b = OffsetOf(unit, "ln_2.bias"),
          .fc_w = OffsetOf(unit, "mlp.c_fc.weight"),
          .fc_b = OffsetOf(unit, "mlp.c_fc.bias"),
          .mlp_proj_w = OffsetOf(unit, "mlp.c_proj.weight"),
          .mlp_proj_b = OffsetOf(unit, "mlp.c_proj.bias")};
}

ConstParam At(const UnitParams& unit, int64_t offset) {
  SHERD_CHECK(unit.data != nullptr);
  return {static_cast<const std::byte*>(unit.data) + offset * SizeOf(unit.dtype), unit.dtype};
}

GradOut At(const UnitGrads& unit, int64_t offset, bool accumulate = false) {
  SHERD_CHECK(unit.data != nullptr);
  return {static_cast<std::byte*>(unit.data) + offset * SizeOf(unit.dtype), unit.dtype, accumulate};
}

int64_t RowsOf(const MicroBatch& micro_batch) { return micro_batch.batch * micro_batch.tokens; }

}  // namespace

Gpt2::Gpt2(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
           bool inference, Ops& ops, MemoryMeter& meter)
    : shape_(shape),
      tied_(inventory.tied),
      capacity_rows_(batch * tokens),
      inference_(inference),
      ops_(ops),
      activations_(shape, batch, tokens, inference, meter) {
  const Unit& embedding = inventory.units.front();
  const Unit& head = inventory.units.back();
  wte_ = OffsetOf(embedding, "wte.weight");
  wpe_ = OffsetOf(embedding, "wpe.weight");
  for (const Unit& unit : inventory.units) {
    if (unit.kind == UnitKind::kBlock) blocks_.push_back(BlockOffsetsOf(unit));
  }
  ln_f_w_ = OffsetOf(head, "ln_f.weight");
  ln_f_b_ = OffsetOf(head, "ln_f.bias");
  if (!tied_) lm_head_w_ = OffsetOf(head, "lm_head.weight");
}

void Gpt2::Forward(int unit, absl::Span<const UnitParams> params, const MicroBatch& micro_batch) {
  SHERD_CHECK(RowsOf(micro_batch) <= capacity_rows_ && micro_batch.tokens <= shape_.context);
  if (unit == 0) {
    EmbeddingForward(params[0], micro_batch);
  } else if (unit <= shape_.layers) {
    AttentionForward(unit - 1, params[static_cast<size_t>(unit)], micro_batch);
    MlpForward(unit - 1, params[static_cast<size_t>(unit)], micro_batch);
  } else {
    HeadForward(params, micro_batch);
  }
}

double Gpt2::Backward(int unit, absl::Span<const UnitParams> params,
                      absl::Span<const UnitGrads> grads, const MicroBatch& micro_batch,
                      float scale) {
  SHERD_CHECK(!inference_);
  const auto index = static_cast<size_t>(unit);
  if (unit > shape_.layers) return HeadBackward(params, grads, micro_batch, scale);
  if (unit == 0) {
    EmbeddingBackward(grads[0], micro_batch);
  } else {
    MlpBackward(unit - 1, params[index], grads[index], micro_batch);
    AttentionBackward(unit - 1, params[index], grads[index], micro_batch);
  }
  return 0;
}

double Gpt2::Loss(const MicroBatch& micro_batch) {
  return ops_.CrossEntropy(activations_.logits(), micro_batch.targets, RowsOf(micro_batch),
                           shape_.vocab);
}

AttentionShape Gpt2::AttentionShapeOf(const MicroBatch& micro_batch) const {
  return {micro_batch.batch, micro_batch.tokens, shape_.heads, shape_.heads, shape_.head_size()};
}

void Gpt2::EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch) {
  ops_.EmbeddingForward(micro_batch.inputs, At(params, wte_), At(params, wpe_),
                        activations_.residual(0), micro_batch.batch, micro_batch.tokens,
                        shape_.hidden);
}

void Gpt2::EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch) {
  // A tied head has written its share of the token embedding's gradient before.
  ops_.EmbeddingBackward(micro_batch.inputs, activations_.d_residual(),
                         At(grads, wte_, /*accumulate=*/tied_), At(grads, wpe_), micro_batch.batch,
                         micro_batch.tokens, shape_.hidden, shape_.vocab, shape_.context);
}

void Gpt2::AttentionForward(int64_t layer, const UnitParams& params,
                            const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const float* x = activations_.residual(layer);  // (N, C)
  float* norm = activations_.narrow();            // (N, C)
  ops_.LayerNormForward(x, At(params, at.ln_1_w), At(params, at.ln_1_b), norm, kept.ln_1_mean,
                        kept.ln_1_rstd, rows, channels);
  ops_.LinearForward(norm, At(params, at.qkv_w), At(params, at.qkv_b), kept.qkv, rows, channels,
                     3 * channels);
  ops_.AttentionForward(kept.qkv, kept.attention, kept.lse, AttentionShapeOf(micro_batch));
  float* projected = activations_.narrow();  // (N, C)
  ops_.LinearForward(kept.attention, At(params, at.attn_proj_w), At(params, at.attn_proj_b),
                     projected, rows, channels, channels);
  ops_.Add(projected, x, kept.middle, rows * channels);
}

void Gpt2::MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* norm = activations_.narrow();  // (N, C)
  float* gelu = activations_.wide();    // (N, F)
  ops_.LayerNormForward(kept.middle, At(params, at.ln_2_w), At(params, at.ln_2_b), norm,
                        kept.ln_2_mean, kept.ln_2_rstd, rows, channels);
  ops_.LinearForward(norm, At(params, at.fc_w), At(params, at.fc_b), kept.fc, rows, channels,
                     shape_.ffn);
  ops_.GeluForward(kept.fc, gelu, rows * shape_.ffn);
  float* projected = activations_.narrow();  // (N, C)
  ops_.LinearForward(gelu, At(params, at.mlp_proj_w), At(params, at.mlp_proj_b), projected, rows,
                     shape_.ffn, channels);
  ops_.Add(projected, kept.middle, activations_.residual(layer + 1), rows * channels);
}

void Gpt2::MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                       const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* d_residual = activations_.d_residual();  // (N, C)
  float* wide = activations_.wide();              // (N, F): gelu, then its gradient, then fc's
  float* narrow = activations_.narrow();          // (N, C): norm, then its gradient

  ops_.GeluForward(kept.fc, wide, rows * shape_.ffn);
  ops_.LinearBackwardWeight(d_residual, wide, At(grads, at.mlp_proj_w), At(grads, at.mlp_proj_b),
                            rows, shape_.ffn, channels);
  ops_.LinearBackwardInput(d_residual, At(params, at.mlp_proj_w), wide, rows, shape_.ffn, channels,
                           /*accumulate=*/false);
  ops_.GeluBackward(wide, kept.fc, wide, rows * shape_.ffn);

  ops_.LayerNormForward(kept.middle, At(params, at.ln_2_w), At(params, at.ln_2_b), narrow,
                        kept.ln_2_mean, kept.ln_2_rstd, rows, channels);
  ops_.LinearBackwardWeight(wide, narrow, At(grads, at.fc_w), At(grads, at.fc_b), rows, channels,
                            shape_.ffn);
  ops_.LinearBackwardInput(wide, At(params, at.fc_w), narrow, rows, channels, shape_.ffn,
                           /*accumulate=*/false);
  ops_.LayerNormBackward(narrow, kept.middle, At(params, at.ln_2_w), kept.ln_2_mean, kept.ln_2_rstd,
                         d_residual, /*accumulate=*/true, At(grads, at.ln_2_w),
                         At(grads, at.ln_2_b), rows, channels);
}

void Gpt2::AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                             const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const float* x = activations_.residual(layer);  // (N, C)
  float* d_residual = activations_.d_residual();  // (N, C)
  float* narrow = activations_.narrow();          // (N, C): d_attention, norm, its gradient
  float* d_qkv = activations_.wide();             // (N, 3C)

  ops_.LinearBackwardWeight(d_residual, kept.attention, At(grads, at.attn_proj_w),
                            At(grads, at.attn_proj_b), rows, channels, channels);
  ops_.LinearBackwardInput(d_residual, At(params, at.attn_proj_w), narrow, rows, channels, channels,
                           /*accumulate=*/false);
  ops_.AttentionBackward(narrow, kept.qkv, kept.attention, kept.lse, d_qkv,
                         AttentionShapeOf(micro_batch));

  ops_.LayerNormForward(x, At(params, at.ln_1_w), At(params, at.ln_1_b), narrow, kept.ln_1_mean,
                        kept.ln_1_rstd, rows, channels);
  ops_.LinearBackwardWeight(d_qkv, narrow, At(grads, at.qkv_w), At(grads, at.qkv_b), rows, channels,
                            3 * channels);
  ops_.LinearBackwardInput(d_qkv, At(params, at.qkv_w), narrow, rows, channels, 3 * channels,
                           /*accumulate=*/false);
  ops_.LayerNormBackward(narrow, x, At(params, at.ln_1_w), kept.ln_1_mean, kept.ln_1_rstd,
                         d_residual, /*accumulate=*/true, At(grads, at.ln_1_w),
                         At(grads, at.ln_1_b), rows, channels);
}

ConstParam Gpt2::HeadWeight(absl::Span<const UnitParams> params) const {
  return tied_ ? At(params.front(), wte_) : At(params.back(), lm_head_w_);
}

void Gpt2::HeadForward(absl::Span<const UnitParams> params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  float* norm = activations_.narrow();  // (N, C), read again by HeadBackward
  ops_.LayerNormForward(activations_.residual(shape_.layers), At(params.back(), ln_f_w_),
                        At(params.back(), ln_f_b_), norm, activations_.final_mean(),
                        activations_.final_rstd(), rows, shape_.hidden);
  ops_.LinearForward(norm, HeadWeight(params), {nullptr, DType::kF32}, activations_.logits(), rows,
                     shape_.hidden, shape_.vocab);
}

double Gpt2::HeadBackward(absl::Span<const UnitParams> params, absl::Span<const UnitGrads> grads,
                          const MicroBatch& micro_batch, float scale) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  float* logits = activations_.logits();  // (N, V), replaced by its gradient
  float* narrow = activations_.narrow();  // (N, C): the norm of HeadForward, then its gradient
  const double loss =
      ops_.CrossEntropyBackward(logits, micro_batch.targets, scale, rows, shape_.vocab);
  const GradOut d_weight = tied_ ? At(grads.front(), wte_) : At(grads.back(), lm_head_w_);
  ops_.LinearBackwardWeight(logits, narrow, d_weight, {nullptr, DType::kF32, false}, rows, channels,
                            shape_.vocab);
  ops_.LinearBackwardInput(logits, HeadWeight(params), narrow, rows, channels, shape_.vocab,
                           /*accumulate=*/false);
  ops_.LayerNormBackward(narrow, activations_.residual(shape_.layers), At(params.back(), ln_f_w_),
                         activations_.final_mean(), activations_.final_rstd(),
                         activations_.d_residual(), /*accumulate=*/false, At(grads.back(), ln_f_w_),
                         At(grads.back(), ln_f_b_), rows, channels);
  return loss;
}

std::unique_ptr<Model> MakeModel(const ModelShape& shape, const Inventory& inventory, int64_t batch,
                                 int64_t tokens, bool inference, Ops& ops, MemoryMeter& meter) {
  return std::make_unique<Gpt2>(shape, inventory, batch, tokens, inference, ops, meter);
}

}  // namespace sherd
