#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace sherd {

// Each family of operations is defined in a file of its own. Every method cuts its work into tiles
// that depend on the sizes alone.
class CpuOps final : public Ops {
 public:
  // A null `meter`: counted nowhere.
  CpuOps(int threads, MemoryMeter* meter);

  void Reserve(const CpuScratchSizes& sizes);

  // linear.cc
  void LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                     int64_t in, int64_t out) override;
  void LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows, int64_t in,
                           int64_t out, bool accumulate) override;
  void LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                            int64_t rows, int64_t in, int64_t out) override;
  void BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) override;

  // embedding.cc
  void EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                        float* x, int64_t rows, int64_t channels) override;
  void EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                         int64_t vocab, int64_t rows, int64_t channels) override;
  void PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row, int64_t rows,
                       int64_t tokens_per_sequence, int64_t channels) override;
  void PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                        int64_t tokens_per_sequence, int64_t channels, int64_t context) override;

  // norm.cc
  void LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                        float* rstd, int64_t rows, int64_t channels) override;
  void LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                         const float* rstd, float* dx, bool accumulate, GradOut dw, GradOut db,
                         int64_t rows, int64_t channels) override;

  // rms_norm.cc
  void RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd, int64_t rows,
                      int64_t channels) override;
  void RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd, float* dx,
                       bool accumulate, GradOut dw, int64_t rows, int64_t channels) override;

  // elementwise.cc
  void GeluForward(const float* x, float* y, int64_t elements) override;
  void GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) override;
  void SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) override;
  void SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                      int64_t ffn) override;
  void ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                       int64_t rows, int64_t channels) override;

  // rotary.cc
  void RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                   int64_t head_size) override;
  void RotaryForward(float* qkv, const float* table, const AttentionShape& shape) override;
  void RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) override;

  // attention.cc
  void AttentionForward(const float* qkv, float* out, float* lse,
                        const AttentionShape& shape) override;
  void AttentionBackward(const float* dout, const float* qkv, const float* out, const float* lse,
                         float* dqkv, const AttentionShape& shape) override;

  // loss.cc
  void CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                            const LossOptions& options, int64_t rows, int64_t vocab,
                            double& loss) override;
  void CrossEntropy(const float* logits, const int32_t* targets, int64_t rows, int64_t vocab,
                    double& loss) override;
  void VocabularyStatistics(float* logits, const int32_t* targets, const VocabularyPart& part,
                            LogitStatistics* statistics, int64_t rows) override;
  void JoinStatistics(const LogitStatistics* of_members, int members, const int32_t* targets,
                      LogitStatistics* joined, int64_t rows, double& loss) override;
  void VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                          const LogitStatistics* own, const LogitStatistics* joined, float scale,
                          const LossOptions& options, int64_t rows) override;

  // adamw.cc
  void AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
             DType grad_dtype, const AdamWParams& params, int64_t elements) override;

  // reduce.cc
  void AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) override;
  void AddRounded(void* dst, const void* src, DType dtype, int64_t elements) override;
  void Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
            int64_t elements) override;

 private:
  // body(begin, end) over ranges that cover [0, elements).
  void ForRanges(int64_t elements, int64_t range,
                 const std::function<void(int64_t begin, int64_t end)>& body);
  // The parameter as fp32: itself, or widened into `room`.
  static const float* Widened(ConstParam param, int64_t elements, float* room);

  // Before tiles that use it: room for `count` floats whichever thread takes a tile.
  void ReserveOnEachThread(Scratch ThreadScratch::*scratch, int64_t count);
  // Room for `count` floats that the tiles of one operation share.
  float* Shared(int64_t count);

  // Of RotaryForward and RotaryBackward.
  void Turn(float* qkv, const float* table, const AttentionShape& shape, bool back);

  // Before a linear operation: panels widened for the last one are of other weights.
  void ForgetPanels();

  const std::unique_ptr<MemoryMeter> own_meter_;
  ThreadPool pool_;
  // One a thread, used within one tile; panels within one operation.
  std::vector<ThreadScratch> scratch_;
  Scratch shared_;
};

}  // namespace sherd
