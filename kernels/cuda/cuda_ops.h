#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/driver.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/ops.h"

namespace sherd {

// Scratch memory that grows to what is asked for and is kept until then. What it gives up may still
// be worked in: whoever gets that memory from the arena enqueues on the same stream.
class GrowingScratch final : public DeviceScratch {
 public:
  // Takes so many bytes at once.
  GrowingScratch(MemoryMeter& meter, int64_t bytes)
      : meter_(meter), buffer_(meter, Pool::kScratch, bytes) {}
  void* Reserve(int64_t bytes) override;

 private:
  MemoryMeter& meter_;
  Buffer buffer_;
};

// Ops of a CudaDevice: kernels/cuda's kernels, and products of matrices by the driver's library. In
// bf16 both operands of a product are rounded to bf16, and queries, keys, values and weights of
// attention where there is a tensor-core kernel; sums are fp32 always. Nothing is enqueued after a
// failure, which the device knows.
class CudaOps final : public Ops {
 public:
  CudaOps(CudaDevice& device, const DeviceOpsOptions& options);
  ~CudaOps() override;

  void LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                     int64_t in, int64_t out) override;
  void LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows, int64_t in,
                           int64_t out, bool accumulate) override;
  void LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                            int64_t rows, int64_t in, int64_t out) override;
  void BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) override;
  void EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                        float* x, int64_t rows, int64_t channels) override;
  void EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                         int64_t vocab, int64_t rows, int64_t channels) override;
  void PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row, int64_t rows,
                       int64_t tokens_per_sequence, int64_t channels) override;
  void PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                        int64_t tokens_per_sequence, int64_t channels, int64_t context) override;
  void LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                        float* rstd, int64_t rows, int64_t channels) override;
  void LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                         const float* rstd, float* dx, bool accumulate, GradOut dw, GradOut db,
                         int64_t rows, int64_t channels) override;
  void RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd, int64_t rows,
                      int64_t channels) override;
  void RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd, float* dx,
                       bool accumulate, GradOut dw, int64_t rows, int64_t channels) override;
  void GeluForward(const float* x, float* y, int64_t elements) override;
  void GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) override;
  void LinearGeluForward(const float* x, ConstParam w, ConstParam bias, float* pre, float* y,
                         bool y_wanted, int64_t rows, int64_t in, int64_t out) override;
  void LinearGeluBackwardInput(const float* dy, ConstParam w, const float* pre, float* dpre,
                               int64_t rows, int64_t in, int64_t out) override;
  void SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) override;
  void SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                      int64_t ffn) override;
  void ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                       int64_t rows, int64_t channels) override;
  void RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                   int64_t head_size) override;
  void RotaryForward(float* qkv, const float* table, const AttentionShape& shape) override;
  void RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) override;
  void AttentionForward(const float* qkv, float* out, float* lse,
                        const AttentionShape& shape) override;
  void AttentionBackward(const float* dout, const float* qkv, const float* out, const float* lse,
                         float* dqkv, const AttentionShape& shape) override;
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
  void AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
             DType grad_dtype, const AdamWParams& params, int64_t elements) override;
  void AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) override;
  void AddRounded(void* dst, const void* src, DType dtype, int64_t elements) override;
  void Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
            int64_t elements) override;

 private:
  // Calls body(kernels) unless something has failed, and remembers a launch that fails.
  template <typename Body>
  void Launch(const Body& body);
  // The same for what adds to a value of the host: body(kernels, its copy on the device).
  template <typename T, typename Body>
  void Add(T& value, const Body& body);
  // Of attention: forward, and hence what backward is the gradient of.
  bool OnTensorCores(const AttentionShape& shape) const;
  // Room for the operands of one product: what a call gives is given up by the next Start.
  class Operands;
  // `product` without its workspace, which is added.
  void Multiply(Product product);
  // `product`, whose operands and type of result are known, to or added to `to`, by way of
  // `operands`' room where that does not fit.
  void MultiplyTo(GradOut to, Product product, Operands& operands);
  // Whether a product gets its epilogue from the library; else a kernel follows.
  bool HasEpilogue(Product product);
  // Back through the GELU of `pre`, unless that is null.
  void BackwardInput(const float* dy, ConstParam w, const float* pre, float* dx, int64_t rows,
                     int64_t in, int64_t out, bool accumulate);
  // Copies, and rounds where types differ.
  void Bring(ConstParam from, GradOut to, int64_t elements);

  CudaDevice& device_;
  const DType operands_;
  MemoryMeter& meter_;
  GrowingScratch kernel_scratch_;
  GrowingScratch operand_scratch_;
  Buffer workspace_;
  Buffer added_;  // a loss, or an exact sum
  CudaKernels kernels_;
};

}  // namespace sherd
