#include "kernels/cuda/cuda_ops.h"

#include "common/check.h"
#include "kernels/cuda/cuda_ops_launch.h"

namespace sherd {

void* GrowingScratch::Reserve(int64_t bytes) {
  if (bytes > buffer_.bytes() || buffer_.data() == nullptr) {
    buffer_ = Buffer();
    buffer_ = Buffer(meter_, Pool::kScratch, bytes);
  }
  return buffer_.data();
}

CudaOps::CudaOps(CudaDevice& device, const DeviceOpsOptions& options)
    : device_(device),
      operands_(options.bf16 ? DType::kBF16 : DType::kF32),
      meter_(*options.meter),
      kernel_scratch_(meter_, options.kernel_scratch_bytes),
      operand_scratch_(meter_, options.operand_scratch_bytes),
      workspace_(meter_, Pool::kScratch, device.driver().workspace_bytes()),
      added_(meter_, Pool::kScratch, sizeof(ExactSum)),
      kernels_(device.compute_stream(), kernel_scratch_) {
  SHERD_CHECK(meter_.device() == &device);
}

// What works in the scratch memory may be enqueued; the arena's next user of it comes behind.
CudaOps::~CudaOps() = default;

void CudaOps::BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) {
  Launch([&](CudaKernels& on) { on.BiasBackward(dy, dbias, rows, channels); });
}
void CudaOps::EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                               float* x, int64_t rows, int64_t channels) {
  Launch(
      [&](CudaKernels& on) { on.EmbeddingForward(tokens, wte, first, vocab, x, rows, channels); });
}
void CudaOps::EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                                int64_t vocab, int64_t rows, int64_t channels) {
  Launch([&](CudaKernels& on) {
    on.EmbeddingBackward(tokens, dx, dwte, first, vocab, rows, channels);
  });
}
void CudaOps::PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row,
                              int64_t rows, int64_t tokens_per_sequence, int64_t channels) {
  Launch([&](CudaKernels& on) {
    on.PositionForward(x, wpe, y, first_row, rows, tokens_per_sequence, channels);
  });
}
void CudaOps::PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                               int64_t tokens_per_sequence, int64_t channels, int64_t context) {
  Launch([&](CudaKernels& on) {
    on.PositionBackward(dx, dwpe, first_row, rows, tokens_per_sequence, channels, context);
  });
}
void CudaOps::LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                               float* rstd, int64_t rows, int64_t channels) {
  Launch([&](CudaKernels& on) { on.LayerNormForward(x, w, b, y, mean, rstd, rows, channels); });
}
void CudaOps::LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                                const float* rstd, float* dx, bool accumulate, GradOut dw,
                                GradOut db, int64_t rows, int64_t channels) {
  Launch([&](CudaKernels& on) {
    on.LayerNormBackward(dy, x, w, mean, rstd, dx, accumulate, dw, db, rows, channels);
  });
}
void CudaOps::RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd,
                             int64_t rows, int64_t channels) {
  Launch([&](CudaKernels& on) { on.RmsNormForward(x, w, eps, y, rstd, rows, channels); });
}
void CudaOps::RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd,
                              float* dx, bool accumulate, GradOut dw, int64_t rows,
                              int64_t channels) {
  Launch([&](CudaKernels& on) {
    on.RmsNormBackward(dy, x, w, rstd, dx, accumulate, dw, rows, channels);
  });
}
void CudaOps::GeluForward(const float* x, float* y, int64_t elements) {
  Launch([&](CudaKernels& on) { on.GeluForward(x, y, elements); });
}
void CudaOps::GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) {
  Launch([&](CudaKernels& on) { on.GeluBackward(dy, x, dx, elements); });
}
void CudaOps::SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) {
  Launch([&](CudaKernels& on) { on.SwiGluForward(gate_up, y, rows, ffn); });
}
void CudaOps::SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                             int64_t ffn) {
  Launch([&](CudaKernels& on) { on.SwiGluBackward(dy, gate_up, dgate_up, rows, ffn); });
}
void CudaOps::ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                              int64_t rows, int64_t channels) {
  Launch([&](CudaKernels& on) { on.ResidualForward(x, bias, residual, y, rows, channels); });
}
void CudaOps::RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                          int64_t head_size) {
  Launch([&](CudaKernels& on) { on.RotaryTable(params, table, tokens, head_size); });
}
void CudaOps::RotaryForward(float* qkv, const float* table, const AttentionShape& shape) {
  Launch([&](CudaKernels& on) { on.RotaryForward(qkv, table, shape); });
}
void CudaOps::RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) {
  Launch([&](CudaKernels& on) { on.RotaryBackward(dqkv, table, shape); });
}
bool CudaOps::OnTensorCores(const AttentionShape& shape) const {
  return operands_ == DType::kBF16 && CudaKernels::HasTensorCoreAttention(shape);
}
void CudaOps::AttentionForward(const float* qkv, float* out, float* lse,
                               const AttentionShape& shape) {
  Launch([&](CudaKernels& on) {
    if (OnTensorCores(shape)) {
      on.TensorCoreAttentionForward(qkv, out, DType::kF32, lse, shape);
    } else {
      on.AttentionForward(qkv, out, lse, shape);
    }
  });
}
void CudaOps::AttentionBackward(const float* dout, const float* qkv, const float* out,
                                const float* lse, float* dqkv, const AttentionShape& shape) {
  Launch([&](CudaKernels& on) {
    on.AttentionBackward(dout, qkv, out, lse, dqkv, shape, OnTensorCores(shape));
  });
}
void CudaOps::CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                                   const LossOptions& options, int64_t rows, int64_t vocab,
                                   double& loss) {
  Add(loss, [&](CudaKernels& on, double* sum) {
    on.CrossEntropyBackward(logits, targets, scale, options, rows, vocab, sum);
  });
}
void CudaOps::CrossEntropy(const float* logits, const int32_t* targets, int64_t rows, int64_t vocab,
                           double& loss) {
  Add(loss,
      [&](CudaKernels& on, double* sum) { on.CrossEntropy(logits, targets, rows, vocab, sum); });
}
void CudaOps::VocabularyStatistics(float* logits, const int32_t* targets,
                                   const VocabularyPart& part, LogitStatistics* statistics,
                                   int64_t rows) {
  Launch(
      [&](CudaKernels& on) { on.VocabularyStatistics(logits, targets, part, statistics, rows); });
}
void CudaOps::JoinStatistics(const LogitStatistics* of_members, int members, const int32_t* targets,
                             LogitStatistics* joined, int64_t rows, double& loss) {
  Add(loss, [&](CudaKernels& on, double* sum) {
    on.JoinStatistics(of_members, members, targets, joined, rows, sum);
  });
}
void CudaOps::VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                                 const LogitStatistics* own, const LogitStatistics* joined,
                                 float scale, const LossOptions& options, int64_t rows) {
  Launch([&](CudaKernels& on) {
    on.VocabularyGradient(logits, targets, part, own, joined, scale, options, rows);
  });
}
void CudaOps::AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
                    DType grad_dtype, const AdamWParams& params, int64_t elements) {
  Launch([&](CudaKernels& on) { on.AdamW(param, from, to, grad, grad_dtype, params, elements); });
}
void CudaOps::AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) {
  Add(sum, [&](CudaKernels& on, ExactSum* there) { on.AddSquares(x, dtype, elements, there); });
}
void CudaOps::AddRounded(void* dst, const void* src, DType dtype, int64_t elements) {
  Launch([&](CudaKernels& on) { on.AddRounded(dst, src, dtype, elements); });
}
void CudaOps::Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t elements) {
  Launch([&](CudaKernels& on) { on.Cast(src, src_dtype, dst, dst_dtype, elements); });
}

}  // namespace sherd
