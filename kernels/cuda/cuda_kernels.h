#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/ops.h"

struct CUstream_st;

namespace sherd {

// Device memory that kernels work in.
class DeviceScratch {
 public:
  virtual ~DeviceScratch() = default;
  // At least `bytes` >= 1, 256-byte aligned, with any contents. What an earlier call gave is given
  // up: work that uses it may be enqueued, so memory that is replaced is freed when that is done.
  // Null when there is none.
  virtual void* Reserve(int64_t bytes) = 0;
};

// Everything that Ops (kernels/ops.h) names but products of matrices, as CUDA kernels: each method
// enqueues on the stream and returns. The meaning is that of ops.h; pointers are device memory,
// also those of losses and of the exact sum. Bits depend on sizes alone: not on the device, its
// number of multiprocessors, the alignment of pointers, or the order in which blocks run.
//
// A launch that fails, or has no kernel, is remembered, and nothing is enqueued after it. One
// caller at a time.
class CudaKernels {
 public:
  // Neither is owned; both outlive the object.
  CudaKernels(CUstream_st* stream, DeviceScratch& scratch) : stream_(stream), scratch_(scratch) {}

  // Empty, or what failed first: kernel and error of a launch, say.
  const std::string& failure() const { return failure_; }

  // columns.cu
  void BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels);

  // embedding.cu
  void EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                        float* x, int64_t rows, int64_t channels);
  void EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                         int64_t vocab, int64_t rows, int64_t channels);
  void PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row, int64_t rows,
                       int64_t tokens_per_sequence, int64_t channels);
  void PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                        int64_t tokens_per_sequence, int64_t channels, int64_t context);

  // layer_norm.cu
  void LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                        float* rstd, int64_t rows, int64_t channels);
  void LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                         const float* rstd, float* dx, bool accumulate, GradOut dw, GradOut db,
                         int64_t rows, int64_t channels);

  // rms_norm.cu
  void RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd, int64_t rows,
                      int64_t channels);
  void RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd, float* dx,
                       bool accumulate, GradOut dw, int64_t rows, int64_t channels);

  // elementwise.cu
  void GeluForward(const float* x, float* y, int64_t elements);
  void GeluBackward(const float* dy, const float* x, float* dx, int64_t elements);
  void SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn);
  void SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                      int64_t ffn);
  void ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                       int64_t rows, int64_t channels);

  // rotary.cu
  void RotaryTable(const RotaryParams& params, float* table, int64_t tokens, int64_t head_size);
  void RotaryForward(float* qkv, const float* table, const AttentionShape& shape);
  void RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape);

  // attention.cu, attention_backward.cu: all arithmetic in fp32, heads of up to kMostHeadChannels;
  // larger ones are a failure.
  static constexpr int64_t kMostHeadChannels = 256;
  void AttentionForward(const float* qkv, float* out, float* lse, const AttentionShape& shape);
  // `of_tensor_cores`: the gradients of what TensorCoreAttentionForward computes, with the
  // roundings of that; sums are in fp32, and so are gradients of scores.
  void AttentionBackward(const float* dout, const float* qkv, const float* out, const float* lse,
                         float* dqkv, const AttentionShape& shape, bool of_tensor_cores = false);
  // attention_bf16.cu: on tensor cores, for heads of 64 or 128 channels. Queries, keys, values and
  // the weights of keys are rounded to bf16; sums and the softmax are fp32. qkv and out are of
  // `dtype`.
  static bool HasTensorCoreAttention(const AttentionShape& shape);
  void TensorCoreAttentionForward(const void* qkv, void* out, DType dtype, float* lse,
                                  const AttentionShape& shape);

  // loss.cu; `loss` is device memory.
  void CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                            const LossOptions& options, int64_t rows, int64_t vocab, double* loss);
  void CrossEntropy(const float* logits, const int32_t* targets, int64_t rows, int64_t vocab,
                    double* loss);
  // vocabulary.cu
  void VocabularyStatistics(float* logits, const int32_t* targets, const VocabularyPart& part,
                            LogitStatistics* statistics, int64_t rows);
  void JoinStatistics(const LogitStatistics* of_members, int members, const int32_t* targets,
                      LogitStatistics* joined, int64_t rows, double* loss);
  void VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                          const LogitStatistics* own, const LogitStatistics* joined, float scale,
                          const LossOptions& options, int64_t rows);

  // adamw.cu
  void AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
             DType grad_dtype, const AdamWParams& params, int64_t elements);

  // squares.cu; `sum` is device memory.
  void AddSquares(const void* x, DType dtype, int64_t elements, ExactSum* sum);

  // elementwise.cu
  void AddRounded(void* dst, const void* src, DType dtype, int64_t elements);
  void Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t elements);

 private:
  // launch.cuh. `blocks` of `threads`; with no blocks nothing.
  template <typename Kernel, typename... Arguments>
  void Run(const Kernel& kernel, int64_t blocks, int threads, size_t shared_bytes,
           Arguments... arguments);
  // Null, and remembered, when there is none.
  template <typename T>
  T* Scratch(int64_t count);

  // columns.cu: gradient (columns) = column sums of x (rows, columns; stride apart), for which it
  // needs room for so many floats.
  static int64_t RoomOfSums(int64_t rows, int64_t columns);
  void SumColumns(const float* x, int64_t stride, int64_t rows, int64_t columns, GradOut gradient,
                  float* room);
  // loss.cu: adds losses (rows) to *loss, one after another.
  void AddLosses(const double* losses, int64_t rows, double* loss);
  // attention.cu: otherwise remembers that it does not.
  bool TakesHeads(const AttentionShape& shape);
  void Turn(float* qkv, const float* table, const AttentionShape& shape, bool back);

  CUstream_st* const stream_;
  DeviceScratch& scratch_;
  std::string failure_;
};

}  // namespace sherd
