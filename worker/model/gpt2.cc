#include "worker/model/gpt2.h"

#include <utility>

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
           KeptActivations kept, Ops& ops, MemoryMeter& meter, TensorGroup* tensor,
           const LossOptions& loss, SpareMemory spare)
    : Transformer(shape, inventory, batch, tokens, kept,
                  OffsetOf(inventory.units.front(), "wte.weight"), ops, meter, tensor, loss,
                  std::move(spare)),
      wpe_(OffsetOf(inventory.units.front(), "wpe.weight")),
      ln_f_w_(OffsetOf(inventory.units.back(), "ln_f.weight")),
      ln_f_b_(OffsetOf(inventory.units.back(), "ln_f.bias")) {
  for (const Unit& unit : inventory.units) {
    if (unit.kind == UnitKind::kBlock) blocks_.push_back(BlockOffsetsOf(unit));
  }
}

void Gpt2::PositionsForward(const UnitParams& params, const float* embedded, float* out,
                            const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  ops_.PositionForward(embedded, At(params, wpe_), out, stream_.FirstRow(rows), stream_.Rows(rows),
                       micro_batch.tokens, shape_.hidden);
}

void Gpt2::PositionsBackward(const UnitGrads& grads, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  ops_.PositionBackward(activations_.d_residual(), At(grads, wpe_), stream_.FirstRow(rows),
                        stream_.Rows(rows), micro_batch.tokens, shape_.hidden, shape_.context);
}

void Gpt2::AttentionForward(int64_t layer, const UnitParams& params,
                            const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const float* x = activations_.residual(layer);  // (R, C)
  ops_.LayerNormForward(x, At(params, at.ln_1_w), At(params, at.ln_1_b), stream_.NormOutput(rows),
                        kept.norm_1_mean, kept.norm_1_rstd, stream_.Rows(rows), channels);
  ops_.LinearForward(stream_.GatherNorm(rows), At(params, at.qkv_w), At(params, at.qkv_b), kept.qkv,
                     rows, channels, part_.qkv_channels());
  ops_.AttentionForward(kept.qkv, kept.attention, kept.lse, AttentionShapeOf(micro_batch));
  RowLayerForward(kept.attention, At(params, at.attn_proj_w), At(params, at.attn_proj_b), x,
                  kept.middle, rows, part_.attention_channels());
}

void Gpt2::MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch,
                      bool output_follows) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  ops_.LayerNormForward(kept.middle, At(params, at.ln_2_w), At(params, at.ln_2_b),
                        stream_.NormOutput(rows), kept.norm_2_mean, kept.norm_2_rstd,
                        stream_.Rows(rows), channels);
  // The same call when it is computed again, for the same bits.
  ops_.LinearGeluForward(stream_.GatherNorm(rows), At(params, at.fc_w), At(params, at.fc_b),
                         kept.mlp, activations_.wide(), output_follows, rows, channels, part_.ffn);
}

void Gpt2::MlpOutput(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const float* gelu = activations_.wide();  // (N, F), of MlpForward
  RowLayerForward(gelu, At(params, at.mlp_proj_w), At(params, at.mlp_proj_b), kept.middle,
                  activations_.residual(layer + 1), rows, part_.ffn);
}

void Gpt2::MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                       const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t stream_rows = stream_.Rows(rows);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* wide = activations_.wide();  // (N, F): gelu, then the gradient of its input

  stream_.StartGradient(rows);
  ops_.GeluForward(kept.mlp, wide, rows * part_.ffn);
  RowLayerBackward(wide, At(params, at.mlp_proj_w), At(grads, at.mlp_proj_w),
                   At(grads, at.mlp_proj_b), wide, rows, part_.ffn, kept.mlp);

  ops_.LayerNormForward(kept.middle, At(params, at.ln_2_w), At(params, at.ln_2_b),
                        stream_.NormOutput(rows), kept.norm_2_mean, kept.norm_2_rstd, stream_rows,
                        channels);
  stream_.GatherNorm(rows);
  const float* d_norm = ColumnLayerBackward(wide, At(params, at.fc_w), At(grads, at.fc_w),
                                            At(grads, at.fc_b), rows, part_.ffn);
  ops_.LayerNormBackward(d_norm, kept.middle, At(params, at.ln_2_w), kept.norm_2_mean,
                         kept.norm_2_rstd, activations_.d_residual(), /*accumulate=*/true,
                         At(grads, at.ln_2_w), At(grads, at.ln_2_b), stream_rows, channels);
}

void Gpt2::AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                             const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t stream_rows = stream_.Rows(rows);
  const int64_t channels = shape_.hidden;
  const Gpt2BlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const float* x = activations_.residual(layer);  // (R, C)
  float* d_attention = activations_.narrow();     // (N, A)
  float* d_qkv = activations_.wide();             // (N, 3A)

  stream_.StartGradient(rows);
  RowLayerBackward(kept.attention, At(params, at.attn_proj_w), At(grads, at.attn_proj_w),
                   At(grads, at.attn_proj_b), d_attention, rows, part_.attention_channels());
  ops_.AttentionBackward(d_attention, kept.qkv, kept.attention, kept.lse, d_qkv,
                         AttentionShapeOf(micro_batch));

  ops_.LayerNormForward(x, At(params, at.ln_1_w), At(params, at.ln_1_b), stream_.NormOutput(rows),
                        kept.norm_1_mean, kept.norm_1_rstd, stream_rows, channels);
  stream_.GatherNorm(rows);
  const float* d_norm = ColumnLayerBackward(d_qkv, At(params, at.qkv_w), At(grads, at.qkv_w),
                                            At(grads, at.qkv_b), rows, part_.qkv_channels());
  ops_.LayerNormBackward(d_norm, x, At(params, at.ln_1_w), kept.norm_1_mean, kept.norm_1_rstd,
                         activations_.d_residual(), /*accumulate=*/true, At(grads, at.ln_1_w),
                         At(grads, at.ln_1_b), stream_rows, channels);
}

void Gpt2::FinalNormForward(const UnitParams& params, float* y, int64_t stream_rows) {
  ops_.LayerNormForward(activations_.residual(shape_.layers), At(params, ln_f_w_),
                        At(params, ln_f_b_), y, activations_.final_mean(),
                        activations_.final_rstd(), stream_rows, shape_.hidden);
}

void Gpt2::FinalNormBackward(const UnitParams& params, const UnitGrads& grads, const float* dy,
                             int64_t stream_rows) {
  ops_.LayerNormBackward(dy, activations_.residual(shape_.layers), At(params, ln_f_w_),
                         activations_.final_mean(), activations_.final_rstd(),
                         activations_.d_residual(), /*accumulate=*/false, At(grads, ln_f_w_),
                         At(grads, ln_f_b_), stream_rows, shape_.hidden);
}

}  // namespace sherd
