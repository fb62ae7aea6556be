#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/transformer.h"

namespace sherd {

// Where a block's parameters start in its unit's flat buffer, in elements. Shapes as in
// activations.h.
struct Gpt2BlockOffsets {
  int64_t ln_1_w, ln_1_b;            // (C), (C)
  int64_t qkv_w, qkv_b;              // (3A, C), (3A): q rows, k rows, v rows
  int64_t attn_proj_w, attn_proj_b;  // (C, A), (C)
  int64_t ln_2_w, ln_2_b;            // (C), (C)
  int64_t fc_w, fc_b;                // (F, C), (F)
  int64_t mlp_proj_w, mlp_proj_b;    // (C, F), (C)
};

// GPT-2 (Radford et al. 2019) as published: learned positions, layer norms before attention and
// MLP, GELU by tanh, biases everywhere but in the head.
class Gpt2 final : public Transformer {
 public:
  Gpt2(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
       KeptActivations kept, Ops& ops, MemoryMeter& meter, TensorGroup* tensor,
       const LossOptions& loss, SpareMemory spare);

 private:
  void PositionsForward(const UnitParams& params, const float* embedded, float* out,
                        const MicroBatch& micro_batch) override;
  void PositionsBackward(const UnitGrads& grads, const MicroBatch& micro_batch) override;
  void AttentionForward(int64_t layer, const UnitParams& params,
                        const MicroBatch& micro_batch) override;
  void MlpForward(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch,
                  bool output_follows) override;
  void MlpOutput(int64_t layer, const UnitParams& params, const MicroBatch& micro_batch) override;
  void MlpBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                   const MicroBatch& micro_batch) override;
  void AttentionBackward(int64_t layer, const UnitParams& params, const UnitGrads& grads,
                         const MicroBatch& micro_batch) override;
  void FinalNormForward(const UnitParams& params, float* y, int64_t stream_rows) override;
  void FinalNormBackward(const UnitParams& params, const UnitGrads& grads, const float* dy,
                         int64_t stream_rows) override;

  int64_t wpe_ = 0;
  std::vector<Gpt2BlockOffsets> blocks_;
  int64_t ln_f_w_ = 0;
  int64_t ln_f_b_ = 0;
};

}  // namespace sherd
