#include "tests/simt/simt_ops.h"

#include "common/check.h"

namespace sherd::simt {
namespace {

template <typename T>
Output Written(T* data, int64_t count, bool overwritten = true) {
  return {data, static_cast<size_t>(count) * sizeof(T), overwritten};
}
Output Written(const GradOut& gradient, int64_t count) {
  return {gradient.data, static_cast<size_t>(count * SizeOf(gradient.dtype)), !gradient.accumulate};
}
int64_t RowsOf(const AttentionShape& shape) { return shape.batch * shape.tokens; }

class SimtOps final : public Ops {
 public:
  void LinearForward(const float*, ConstParam, ConstParam, float*, int64_t, int64_t,
                     int64_t) override {
    SHERD_CHECK(false);
  }
  void LinearBackwardInput(const float*, ConstParam, float*, int64_t, int64_t, int64_t,
                           bool) override {
    SHERD_CHECK(false);
  }
  void LinearBackwardWeight(const float*, const float*, GradOut, GradOut, int64_t, int64_t,
                            int64_t) override {
    SHERD_CHECK(false);
  }
  void BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) override {
    orders_.Run({Written(dbias, channels)},
                [&](CudaKernels& on) { on.BiasBackward(dy, dbias, rows, channels); });
  }
  void EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                        float* x, int64_t rows, int64_t channels) override {
    orders_.Run({Written(x, rows * channels)}, [&](CudaKernels& on) {
      on.EmbeddingForward(tokens, wte, first, vocab, x, rows, channels);
    });
  }
  void EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                         int64_t vocab, int64_t rows, int64_t channels) override {
    orders_.Run({Written(dwte, vocab * channels)}, [&](CudaKernels& on) {
      on.EmbeddingBackward(tokens, dx, dwte, first, vocab, rows, channels);
    });
  }
  void PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row, int64_t rows,
                       int64_t tokens_per_sequence, int64_t channels) override {
    orders_.Run({Written(y, rows * channels, y != x)}, [&](CudaKernels& on) {
      on.PositionForward(x, wpe, y, first_row, rows, tokens_per_sequence, channels);
    });
  }
  void PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                        int64_t tokens_per_sequence, int64_t channels, int64_t context) override {
    orders_.Run({Written(dwpe, context * channels)}, [&](CudaKernels& on) {
      on.PositionBackward(dx, dwpe, first_row, rows, tokens_per_sequence, channels, context);
    });
  }
  void LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                        float* rstd, int64_t rows, int64_t channels) override {
    orders_.Run(
        {Written(y, rows * channels), Written(mean, rows), Written(rstd, rows)},
        [&](CudaKernels& on) { on.LayerNormForward(x, w, b, y, mean, rstd, rows, channels); });
  }
  void LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                         const float* rstd, float* dx, bool accumulate, GradOut dw, GradOut db,
                         int64_t rows, int64_t channels) override {
    orders_.Run(
        {Written(dx, rows * channels, !accumulate), Written(dw, channels), Written(db, channels)},
        [&](CudaKernels& on) {
          on.LayerNormBackward(dy, x, w, mean, rstd, dx, accumulate, dw, db, rows, channels);
        });
  }
  void RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd, int64_t rows,
                      int64_t channels) override {
    orders_.Run({Written(y, rows * channels), Written(rstd, rows)},
                [&](CudaKernels& on) { on.RmsNormForward(x, w, eps, y, rstd, rows, channels); });
  }
  void RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd, float* dx,
                       bool accumulate, GradOut dw, int64_t rows, int64_t channels) override {
    orders_.Run({Written(dx, rows * channels, !accumulate), Written(dw, channels)},
                [&](CudaKernels& on) {
                  on.RmsNormBackward(dy, x, w, rstd, dx, accumulate, dw, rows, channels);
                });
  }
  void GeluForward(const float* x, float* y, int64_t elements) override {
    orders_.Run({Written(y, elements, y != x)},
                [&](CudaKernels& on) { on.GeluForward(x, y, elements); });
  }
  void GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) override {
    orders_.Run({Written(dx, elements, dx != dy)},
                [&](CudaKernels& on) { on.GeluBackward(dy, x, dx, elements); });
  }
  void SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) override {
    orders_.Run({Written(y, rows * ffn)},
                [&](CudaKernels& on) { on.SwiGluForward(gate_up, y, rows, ffn); });
  }
  void SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                      int64_t ffn) override {
    orders_.Run({Written(dgate_up, rows * 2 * ffn, dgate_up != gate_up)},
                [&](CudaKernels& on) { on.SwiGluBackward(dy, gate_up, dgate_up, rows, ffn); });
  }
  void ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                       int64_t rows, int64_t channels) override {
    orders_.Run({Written(y, rows * channels, y != x && y != residual)},
                [&](CudaKernels& on) { on.ResidualForward(x, bias, residual, y, rows, channels); });
  }
  void RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                   int64_t head_size) override {
    orders_.Run({Written(table, tokens * head_size)},
                [&](CudaKernels& on) { on.RotaryTable(params, table, tokens, head_size); });
  }
  void RotaryForward(float* qkv, const float* table, const AttentionShape& shape) override {
    orders_.Run({Written(qkv, RowsOf(shape) * shape.qkv_channels(), false)},
                [&](CudaKernels& on) { on.RotaryForward(qkv, table, shape); });
  }
  void RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) override {
    orders_.Run({Written(dqkv, RowsOf(shape) * shape.qkv_channels(), false)},
                [&](CudaKernels& on) { on.RotaryBackward(dqkv, table, shape); });
  }
  void AttentionForward(const float* qkv, float* out, float* lse,
                        const AttentionShape& shape) override {
    orders_.Run({Written(out, RowsOf(shape) * shape.heads * shape.head_size),
                 Written(lse, RowsOf(shape) * shape.heads)},
                [&](CudaKernels& on) { on.AttentionForward(qkv, out, lse, shape); });
  }
  void AttentionBackward(const float* dout, const float* qkv, const float* out, const float* lse,
                         float* dqkv, const AttentionShape& shape) override {
    orders_.Run({Written(dqkv, RowsOf(shape) * shape.qkv_channels())},
                [&](CudaKernels& on) { on.AttentionBackward(dout, qkv, out, lse, dqkv, shape); });
  }
  void CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                            const LossOptions& options, int64_t rows, int64_t vocab,
                            double& loss) override {
    orders_.Run({Written(logits, rows * vocab, false), Written(&loss, 1, false)},
                [&](CudaKernels& on) {
                  on.CrossEntropyBackward(logits, targets, scale, options, rows, vocab, &loss);
                });
  }
  void CrossEntropy(const float* logits, const int32_t* targets, int64_t rows, int64_t vocab,
                    double& loss) override {
    orders_.Run({Written(&loss, 1, false)},
                [&](CudaKernels& on) { on.CrossEntropy(logits, targets, rows, vocab, &loss); });
  }
  void VocabularyStatistics(float* logits, const int32_t* targets, const VocabularyPart& part,
                            LogitStatistics* statistics, int64_t rows) override {
    orders_.Run(
        {Written(logits, rows * part.columns, false), Written(statistics, rows)},
        [&](CudaKernels& on) { on.VocabularyStatistics(logits, targets, part, statistics, rows); });
  }
  void JoinStatistics(const LogitStatistics* of_members, int members, const int32_t* targets,
                      LogitStatistics* joined, int64_t rows, double& loss) override {
    orders_.Run({Written(joined, rows), Written(&loss, 1, false)}, [&](CudaKernels& on) {
      on.JoinStatistics(of_members, members, targets, joined, rows, &loss);
    });
  }
  void VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                          const LogitStatistics* own, const LogitStatistics* joined, float scale,
                          const LossOptions& options, int64_t rows) override {
    orders_.Run({Written(logits, rows * part.columns, false)}, [&](CudaKernels& on) {
      on.VocabularyGradient(logits, targets, part, own, joined, scale, options, rows);
    });
  }
  void AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
             DType grad_dtype, const AdamWParams& params, int64_t elements) override {
    std::vector<Output> outputs = {Written(to.master, elements, to.master != from.master),
                                   Written(to.m, elements, to.m != from.m),
                                   Written(to.v, elements, to.v != from.v)};
    if (param.data != to.master) outputs.push_back(Written(param, elements));
    orders_.Run(outputs, [&](CudaKernels& on) {
      on.AdamW(param, from, to, grad, grad_dtype, params, elements);
    });
  }
  void AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) override {
    orders_.Run({Written(&sum, 1, false)},
                [&](CudaKernels& on) { on.AddSquares(x, dtype, elements, &sum); });
  }
  void AddRounded(void* dst, const void* src, DType dtype, int64_t elements) override {
    orders_.Run({Written(GradOut{dst, dtype, true}, elements)},
                [&](CudaKernels& on) { on.AddRounded(dst, src, dtype, elements); });
  }
  void Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
            int64_t elements) override {
    orders_.Run({Written(GradOut{dst, dst_dtype, false}, elements)},
                [&](CudaKernels& on) { on.Cast(src, src_dtype, dst, dst_dtype, elements); });
  }

 private:
  Orders orders_;
};

}  // namespace

std::unique_ptr<Ops> MakeSimtOps() { return std::make_unique<SimtOps>(); }

}  // namespace sherd::simt
