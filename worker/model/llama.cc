#include "worker/model/llama.h"

#include "common/check.h"
#include "worker/model/unit_view.h"

namespace sherd {
namespace {

// A product with the first of several matrices goes on into those behind it.
LlamaBlockOffsets BlockOffsetsOf(const Unit& unit, const ModelShape& shape) {
  const int64_t q = OffsetOf(unit, "self_attn.q_proj.weight");
  const int64_t k = OffsetOf(unit, "self_attn.k_proj.weight");
  const int64_t v = OffsetOf(unit, "self_attn.v_proj.weight");
  const int64_t gate = OffsetOf(unit, "mlp.gate_proj.weight");
  const int64_t up = OffsetOf(unit, "mlp.up_proj.weight");
  const int64_t kv_elements = shape.kv_heads * shape.head_size() * shape.hidden;
  SHERD_CHECK(k == q + shape.hidden * shape.hidden && v == k + kv_elements);
  SHERD_CHECK(up == gate + shape.ffn * shape.hidden);
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
             KeptActivations kept, Ops& ops, MemoryMeter& meter)
    : Transformer(shape, inventory, batch, tokens, kept,
                  OffsetOf(inventory.units.front(), "model.embed_tokens.weight"), ops, meter),
      final_norm_w_(OffsetOf(inventory.units.back(), "model.norm.weight")),
      rotary_table_(meter, Pool::kActivations,
                    tokens * shape.head_size() * static_cast<int64_t>(sizeof(float))) {
  for (const Unit& unit : inventory.units) {
    if (unit.kind == UnitKind::kBlock) blocks_.push_back(BlockOffsetsOf(unit, shape));
  }
  ops_.RotaryTable(RotaryOf(shape.rotary), rotary_table_.as<float>(), tokens, shape.head_size());
}

void Llama::EmbeddingForward(const UnitParams& params, const MicroBatch& micro_batch) {
  ops_.EmbeddingForward(micro_batch.inputs, At(params, token_embedding_), kNoParam,
                        activations_.residual(0), micro_batch.batch, micro_batch.tokens,
                        shape_.hidden);
}

void Llama::EmbeddingBackward(const UnitGrads& grads, const MicroBatch& micro_batch) {
  ops_.EmbeddingBackward(micro_batch.inputs, activations_.d_residual(),
                         At(grads, token_embedding_, /*accumulate=*/tied_), kNoGrad,
                         micro_batch.batch, micro_batch.tokens, shape_.hidden, shape_.vocab,
                         shape_.context);
}

void Llama::AttentionForward(int64_t layer, const UnitParams& params,
                             const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const AttentionShape attention = AttentionShapeOf(micro_batch);
  const float* x = activations_.residual(layer);  // (N, C)
  float* norm = activations_.narrow();            // (N, C)
  ops_.RmsNormForward(x, At(params, at.norm_1_w), shape_.norm_eps, norm, kept.norm_1_rstd, rows,
                      channels);
  ops_.LinearForward(norm, At(params, at.qkv_w), kNoParam, kept.qkv, rows, channels,
                     shape_.qkv_channels());
  ops_.RotaryForward(kept.qkv, rotary_table_.as<float>(), attention);
  ops_.AttentionForward(kept.qkv, kept.attention, kept.lse, attention);
  float* projected = activations_.narrow();  // (N, C)
  ops_.LinearForward(kept.attention, At(params, at.o_w), kNoParam, projected, rows, channels,
                     channels);
  ops_.Add(projected, x, kept.middle, rows * channels);
}

void Llama::MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* norm = activations_.narrow();  // (N, C)
  ops_.RmsNormForward(kept.middle, At(params, at.norm_2_w), shape_.norm_eps, norm, kept.norm_2_rstd,
                      rows, shape_.hidden);
  ops_.LinearForward(norm, At(params, at.gate_up_w), kNoParam, kept.mlp, rows, shape_.hidden,
                     2 * shape_.ffn);
}

void Llama::MlpOutput(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* gated = activations_.wide();        // (N, F)
  float* projected = activations_.narrow();  // (N, C)
  ops_.SwiGluForward(kept.mlp, gated, rows, shape_.ffn);
  ops_.LinearForward(gated, At(params, at.down_w), kNoParam, projected, rows, shape_.ffn, channels);
  ops_.Add(projected, kept.middle, activations_.residual(layer + 1), rows * channels);
}

void Llama::MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                        const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  float* d_residual = activations_.d_residual();  // (N, C)
  float* wide = activations_.wide();              // (N, F): SwiGLU's output, then its gradient
  float* narrow = activations_.narrow();          // (N, C): norm, then its gradient

  ops_.SwiGluForward(kept.mlp, wide, rows, shape_.ffn);
  ops_.LinearBackwardWeight(d_residual, wide, At(grads, at.down_w), kNoGrad, rows, shape_.ffn,
                            channels);
  ops_.LinearBackwardInput(d_residual, At(params, at.down_w), wide, rows, shape_.ffn, channels,
                           /*accumulate=*/false);
  // Nothing reads gate and up again: their gradients take their place.
  float* d_gate_up = kept.mlp;  // (N, 2F)
  ops_.SwiGluBackward(wide, kept.mlp, d_gate_up, rows, shape_.ffn);

  ops_.RmsNormForward(kept.middle, At(params, at.norm_2_w), shape_.norm_eps, narrow,
                      kept.norm_2_rstd, rows, channels);
  ops_.LinearBackwardWeight(d_gate_up, narrow, At(grads, at.gate_up_w), kNoGrad, rows, channels,
                            2 * shape_.ffn);
  ops_.LinearBackwardInput(d_gate_up, At(params, at.gate_up_w), narrow, rows, channels,
                           2 * shape_.ffn, /*accumulate=*/false);
  ops_.RmsNormBackward(narrow, kept.middle, At(params, at.norm_2_w), kept.norm_2_rstd, d_residual,
                       /*accumulate=*/true, At(grads, at.norm_2_w), rows, channels);
}

void Llama::AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                              const MicroBatch& micro_batch) {
  const int64_t rows = RowsOf(micro_batch);
  const int64_t channels = shape_.hidden;
  const LlamaBlockOffsets& at = blocks_[static_cast<size_t>(layer)];
  const BlockActivations& kept = activations_.block(layer);
  const AttentionShape attention = AttentionShapeOf(micro_batch);
  const float* x = activations_.residual(layer);  // (N, C)
  float* d_residual = activations_.d_residual();  // (N, C)
  float* narrow = activations_.narrow();          // (N, C): d_attention, norm, its gradient
  float* d_qkv = activations_.wide();             // (N, (H + 2K)·D)

  ops_.LinearBackwardWeight(d_residual, kept.attention, At(grads, at.o_w), kNoGrad, rows, channels,
                            channels);
  ops_.LinearBackwardInput(d_residual, At(params, at.o_w), narrow, rows, channels, channels,
                           /*accumulate=*/false);
  ops_.AttentionBackward(narrow, kept.qkv, kept.attention, kept.lse, d_qkv, attention);
  ops_.RotaryBackward(d_qkv, rotary_table_.as<float>(), attention);

  ops_.RmsNormForward(x, At(params, at.norm_1_w), shape_.norm_eps, narrow, kept.norm_1_rstd, rows,
                      channels);
  ops_.LinearBackwardWeight(d_qkv, narrow, At(grads, at.qkv_w), kNoGrad, rows, channels,
                            shape_.qkv_channels());
  ops_.LinearBackwardInput(d_qkv, At(params, at.qkv_w), narrow, rows, channels,
                           shape_.qkv_channels(), /*accumulate=*/false);
  ops_.RmsNormBackward(narrow, x, At(params, at.norm_1_w), kept.norm_1_rstd, d_residual,
                       /*accumulate=*/true, At(grads, at.norm_1_w), rows, channels);
}

void Llama::FinalNormForward(const UnitParams& params, int64_t rows) {
  ops_.RmsNormForward(activations_.residual(shape_.layers), At(params, final_norm_w_),
                      shape_.norm_eps, activations_.narrow(), activations_.final_rstd(), rows,
                      shape_.hidden);
}

void Llama::FinalNormBackward(const UnitParams& params, const UnitGrads& grads, int64_t rows) {
  ops_.RmsNormBackward(activations_.narrow(), activations_.residual(shape_.layers),
                       At(params, final_norm_w_), activations_.final_rstd(),
                       activations_.d_residual(), /*accumulate=*/false, At(grads, final_norm_w_),
                       rows, shape_.hidden);
}

}  // namespace sherd
