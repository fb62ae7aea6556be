#include "worker/model/llama.h"

#include <utility>

#include "common/check.h"
#include "worker/model/unit_view.h"

namespace sherd {
namespace {

// A product with the first of several matrices goes on into those behind it.
LlamaBlockOffsets BlockOffsetsOf(const Unit& unit, const ModelPart& part, int64_t channels) {
  const int64_t q = OffsetOf(unit, "self_attn.q_proj.weight");
  const int64_t k = OffsetOf(unit, "self_attn.k_proj.weight");
  const int64_t v = OffsetOf(unit, "self_attn.v_proj.weight");
  const int64_t gate = OffsetOf(unit, "mlp.gate_proj.weight");
  const int64_t up = OffsetOf(unit, "mlp.up_proj.weight");
  SHERD_CHECK(k == q + part.attention_channels() * channels);
  SHERD_CHECK(v == k + part.kv_heads * part.head_size * channels);
  SHERD_CHECK(up == gate + part.ffn * channels);
  return {.norm_1_w = OffsetOf(unit, "input_layernorm.weight"),
          .qkv_w = q,
          .o_w = OffsetOf(unit, "self_attn.o_proj.weight"),
          .norm_2_w = OffsetOf(unit, "post_attention_layernorm.weight"),
          .gate_up_w = gate,
          .down_w = OffsetOf(unit, "mlp.down_proj.weight")};
}

RotaryParams RotaryOf(const RotaryShape& shape) {
  return {.theta = shape.theta,
          .factor = shape.factor,
          .low_freq_factor = shape.low_freq_factor,
          .high_freq_factor = shape.high_freq_factor,
          .original_context = shape.original_context};
}

}  // namespace

Llama::Llama(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
             KeptActivations kept, Ops& ops, MemoryMeter& meter, TensorGroup* tensor,
             const LossOptions& loss, SpareMemory spare)
    : Transformer(shape, inventory, batch, tokens, kept,
                  OffsetOf(inventory.units.front(), "model.embed_tokens.weight"), ops, meter,
                  tensor, loss, std::move(spare)),
      final_norm_w_(OffsetOf(inventory.units.back(), "model.norm.weight")),
      rotary_table_(meter, Pool::kActivations,
                    tokens * shape.head_size() * static_cast<int64_t>(sizeof(float))) {
  for (const Unit& unit : inventory.units) {
    if (unit.kind == UnitKind::kBlock) blocks_.push_back(BlockOffsetsOf(unit, part_, shape.hidden));
  }
  ops_.RotaryTable(RotaryOf(shape.rotary), rotary_table_.as<float>(), tokens, shape.head_size());
}

// Positions come in by rotation of queries and keys.
void Llama::PositionsForward(const UnitParams& params, const float* embedded, float* out,
                             const MicroBatch& micro_batch) {
  if (embedded == out) return;
  ops_.Cast(embedded, DType::kF32, out, DType::kF32,
            stream_.Rows(RowsOf(micro_batch)) * shape_.hidden);
}

void Llama::PositionsBackward(const UnitGrads& grads, const MicroBatch& micro_batch) {}

void Llama::AttentionForward(int64_t layer, const UnitParams& params,
                             const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const AttentionShape attention = AttentionShapeOf(micro_batch);
  const float* x = activations_.residual(layer);  // (R, C)
  ops_.RmsNormForward(x, At(params, at.norm_1_w), shape_.norm_eps, stream_.NormOutput(rows),
                      kept.norm_1_rstd, stream_.Rows(rows), channels);
  ops_.LinearForward(stream_.GatherNorm(rows), At(params, at.qkv_w), kNoParam, kept.qkv, rows,
                     channels, part_.qkv_channels());
  ops_.RotaryForward(kept.qkv, rotary_table_.as<float>(), attention);
  ops_.AttentionForward(kept.qkv, kept.attention, kept.lse, attention);
  RowLayerForward(kept.attention, At(params, at.o_w), kNoParam, x, kept.middle, rows,
                  part_.attention_channels());
}

void Llama::MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch,
                       bool) {
  const int64_t rows = RowsOf(micro_batch);
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  ops_.RmsNormForward(kept.middle, At(params, at.norm_2_w), shape_.norm_eps,
                      stream_.NormOutput(rows), kept.norm_2_rstd, stream_.Rows(rows),
                      shape_.hidden);
  ops_.LinearForward(stream_.GatherNorm(rows), At(params, at.gate_up_w), kNoParam, kept.mlp, rows,
                     shape_.hidden, 2 * part_.ffn);
}

void Llama::MlpOutput(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* gated = activations_.wide();  // (N, F)
  ops_.SwiGluForward(kept.mlp, gated, rows, part_.ffn);
  RowLayerForward(gated, At(params, at.down_w), kNoParam, kept.middle,
                  activations_.residual(layer + 1), rows, part_.ffn);
}

void Llama::MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                        const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t stream_rows = stream_.Rows(rows);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* wide = activations_.wide();  // (N, F): SwiGLU's output, then its gradient

  stream_.StartGradient(rows);
  ops_.SwiGluForward(kept.mlp, wide, rows, part_.ffn);
  RowLayerBackward(wide, At(params, at.down_w), At(grads, at.down_w), kNoGrad, wide, rows,
                   part_.ffn);
  // Nothing reads gate and up again: their gradients take their place.
  float* d_gate_up = kept.mlp;  // (N, 2F)
  ops_.SwiGluBackward(wide, kept.mlp, d_gate_up, rows, part_.ffn);

  ops_.RmsNormForward(kept.middle, At(params, at.norm_2_w), shape_.norm_eps,
                      stream_.NormOutput(rows), kept.norm_2_rstd, stream_rows, channels);
  stream_.GatherNorm(rows);
  const float* d_norm = ColumnLayerBackward(d_gate_up, At(params, at.gate_up_w),
                                            At(grads, at.gate_up_w), kNoGrad, rows, 2 * part_.ffn);
  ops_.RmsNormBackward(d_norm, kept.middle, At(params, at.norm_2_w), kept.norm_2_rstd,
                       activations_.d_residual(), /*accumulate=*/true, At(grads, at.norm_2_w),
                       stream_rows, channels);
}

void Llama::AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                              const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t stream_rows = stream_.Rows(rows);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const AttentionShape attention = AttentionShapeOf(micro_batch);
  const float* x = activations_.residual(layer);  // (R, C)
  float* d_attention = activations_.narrow();     // (N, A)
  float* d_qkv = activations_.wide();             // (N, (H + 2K)·D)

  stream_.StartGradient(rows);
  RowLayerBackward(kept.attention, At(params, at.o_w), At(grads, at.o_w), kNoGrad, d_attention,
                   rows, part_.attention_channels());
  ops_.AttentionBackward(d_attention, kept.qkv, kept.attention, kept.lse, d_qkv, attention);
  ops_.RotaryBackward(d_qkv, rotary_table_.as<float>(), attention);

  ops_.RmsNormForward(x, At(params, at.norm_1_w), shape_.norm_eps, stream_.NormOutput(rows),
                      kept.norm_1_rstd, stream_rows, channels);
  stream_.GatherNorm(rows);
  const float* d_norm = ColumnLayerBackward(d_qkv, At(params, at.qkv_w), At(grads, at.qkv_w),
                                            kNoGrad, rows, part_.qkv_channels());
  ops_.RmsNormBackward(d_norm, x, At(params, at.norm_1_w), kept.norm_1_rstd,
                       activations_.d_residual(), /*accumulate=*/true, At(grads, at.norm_1_w),
                       stream_rows, channels);
}

void Llama::FinalNormForward(const UnitParams& params, float* y, int64_t stream_rows) {
  ops_.RmsNormForward(activations_.residual(shape_.layers), At(params, final_norm_w_),
                      shape_.norm_eps, y, activations_.final_rstd(), stream_rows, shape_.hidden);
}

void Llama::FinalNormBackward(const UnitParams& params, const UnitGrads& grads, const float* dy,
                              int64_t stream_rows) {
  ops_.RmsNormBackward(dy, activations_.residual(shape_.layers), At(params, final_norm_w_),
                       activations_.final_rstd(), activations_.d_residual(), /*accumulate=*/false,
                       At(grads, final_norm_w_), stream_rows, shape_.hidden);
}

}  // namespace sherd
