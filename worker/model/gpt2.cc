#include "worker/model/gpt2.h"

#include "worker/model/unit_view.h"

namespace sherd {
namespace {

Gpt2BlockOffsets BlockOffsetsOf(const Unit& unit) {
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

}  // namespace

Gpt2::Gpt2(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
           KeptActivations kept, Ops& ops, MemoryMeter& meter)
    : Transformer(shape, inventory, batch, tokens, kept,
                  OffsetOf(inventory.units.front(), "wte.weight"), ops, meter),
      wpe_(OffsetOf(inventory.units.front(), "wpe.weight")),
      ln_f_w_(OffsetOf(inventory.units.back(), "ln_f.weight")),
      ln_f_b_(OffsetOf(inventory.units.back(), "ln_f.bias")) {
  for (const Unit& unit : inventory.units) {
    if (unit.kind == UnitKind::kBlock) blocks_.push_back(BlockOffsetsOf(unit));
  }
}

void Gpt2::EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch) {
  ops_.EmbeddingForward(micro_batch.inputs, At(params, token_embedding_), At(params, wpe_),
                        activations_.residual(0), micro_batch.batch, micro_batch.tokens,
                        shape_.hidden);
}

void Gpt2::EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch) {
  ops_.EmbeddingBackward(micro_batch.inputs, activations_.d_residual(),
                         At(grads, token_embedding_, /*accumulate=*/tied_), At(grads, wpe_),
                         micro_batch.batch, micro_batch.tokens, shape_.hidden, shape_.vocab,
                         shape_.context);
}

void Gpt2::AttentionForward(int64_t layer, const UnitParams& params,
                            const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const float* x = activations_.residual(layer);  // (N, C)
  float* norm = activations_.narrow();            // (N, C)
  ops_.LayerNormForward(x, At(params, at.ln_1_w), At(params, at.ln_1_b), norm, kept.norm_1_mean,
                        kept.norm_1_rstd, rows, channels);
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
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* norm = activations_.narrow();  // (N, C)
  ops_.LayerNormForward(kept.middle, At(params, at.ln_2_w), At(params, at.ln_2_b), norm,
                        kept.norm_2_mean, kept.norm_2_rstd, rows, channels);
  ops_.LinearForward(norm, At(params, at.fc_w), At(params, at.fc_b), kept.mlp, rows, channels,
                     shape_.ffn);
}

void Gpt2::MlpOutput(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* gelu = activations_.wide();         // (N, F)
  float* projected = activations_.narrow();  // (N, C)
  ops_.GeluForward(kept.mlp, gelu, rows * shape_.ffn);
  ops_.LinearForward(gelu, At(params, at.mlp_proj_w), At(params, at.mlp_proj_b), projected, rows,
                     shape_.ffn, channels);
  ops_.Add(projected, kept.middle, activations_.residual(layer + 1), rows * channels);
}

void Gpt2::MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                       const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* d_residual = activations_.d_residual();  // (N, C)
  float* wide = activations_.wide();              // (N, F): gelu, then its gradient, then fc's
  float* narrow = activations_.narrow();          // (N, C): norm, then its gradient

  ops_.GeluForward(kept.mlp, wide, rows * shape_.ffn);
  ops_.LinearBackwardWeight(d_residual, wide, At(grads, at.mlp_proj_w), At(grads, at.mlp_proj_b),
                            rows, shape_.ffn, channels);
  ops_.LinearBackwardInput(d_residual, At(params, at.mlp_proj_w), wide, rows, shape_.ffn, channels,
                           /*accumulate=*/false);
  ops_.GeluBackward(wide, kept.mlp, wide, rows * shape_.ffn);

  ops_.LayerNormForward(kept.middle, At(params, at.ln_2_w), At(params, at.ln_2_b), narrow,
                        kept.norm_2_mean, kept.norm_2_rstd, rows, channels);
  ops_.LinearBackwardWeight(wide, narrow, At(grads, at.fc_w), At(grads, at.fc_b), rows, channels,
                            shape_.ffn);
  ops_.LinearBackwardInput(wide, At(params, at.fc_w), narrow, rows, channels, shape_.ffn,
                           /*accumulate=*/false);
  ops_.LayerNormBackward(narrow, kept.middle, At(params, at.ln_2_w), kept.norm_2_mean,
                         kept.norm_2_rstd, d_residual, /*accumulate=*/true, At(grads, at.ln_2_w),
                         At(grads, at.ln_2_b), rows, channels);
}

void Gpt2::AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                             const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
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

  ops_.LayerNormForward(x, At(params, at.ln_1_w), At(params, at.ln_1_b), narrow, kept.norm_1_mean,
                        kept.norm_1_rstd, rows, channels);
  ops_.LinearBackwardWeight(d_qkv, narrow, At(grads, at.qkv_w), At(grads, at.qkv_b), rows, channels,
                            3 * channels);
  ops_.LinearBackwardInput(d_qkv, At(params, at.qkv_w), narrow, rows, channels, 3 * channels,
                           /*accumulate=*/false);
  ops_.LayerNormBackward(narrow, x, At(params, at.ln_1_w), kept.norm_1_mean, kept.norm_1_rstd,
                         d_residual, /*accumulate=*/true, At(grads, at.ln_1_w),
                         At(grads, at.ln_1_b), rows, channels);
}

void Gpt2::FinalNormForward(const UnitParams& params, int64_t rows) {
  ops_.LayerNormForward(activations_.residual(shape_.layers), At(params, ln_f_w_),
                        At(params, ln_f_b_), activations_.narrow(), activations_.final_mean(),
                        activations_.final_rstd(), rows, shape_.hidden);
}

void Gpt2::FinalNormBackward(const UnitParams& params, const UnitGrads& grads, int64_t rows) {
  ops_.LayerNormBackward(activations_.narrow(), activations_.residual(shape_.layers),
                         At(params, ln_f_w_), activations_.final_mean(), activations_.final_rstd(),
                         activations_.d_residual(), /*accumulate=*/false, At(grads, ln_f_w_),
                         At(grads, ln_f_b_), rows, shape_.hidden);
}

}  // namespace sherd
