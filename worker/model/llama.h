#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/transformer.h"

namespace sherd {

// Where a block's parameters start in its unit's flat buffer, in elements. Shapes as in
// activations.h.
struct LlamaBlockOffsets {
  int64_t norm_1_w;   // (C)
  int64_t qkv_w;      // ((H + 2K)·D, C): q rows, k rows, v rows, three parameters in a row
  int64_t o_w;        // (C, A)
  int64_t norm_2_w;   // (C)
  int64_t gate_up_w;  // (2F, C): gate rows, up rows, two parameters in a row
  int64_t down_w;     // (C, F)
};

// Llama (Touvron et al. 2023; Grattafiori et al. 2024) as published: RMS norms before attention and
// MLP, rotary positions, heads that share keys and values, SwiGLU, no biases.
class Llama final : public Transformer {
 public:
  Llama(const ModelShape& shape, const Inventory& inventory, int64_t batch, int64_t tokens,
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

  std::vector<LlamaBlockOffsets> blocks_;
  int64_t final_norm_w_ = 0;
  Buffer rotary_table_;  // (T, 2, D / 2)
};

}  // namespace sherd
