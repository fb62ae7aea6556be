#include "tests/cuda/copied_ops.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace sherd {
namespace {

int64_t RowsOf(const AttentionShape& shape) { return shape.batch * shape.tokens; }

// The memory of one operation, there and here. What begins at the same place here does there.
class Copies {
 public:
  Copies(Accelerator& device, MemoryMeter& meter) : device_(device), meter_(meter) {}
  ~Copies() {
    for (const Piece& piece : pieces_) {
      if (piece.written) device_.CopyOut(piece.host, piece.there.data(), piece.there.bytes());
    }
    const absl::Status status = device_.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }
  Copies(const Copies&) = delete;

  template <typename T>
  const T* In(const T* host, int64_t count) {
    return static_cast<const T*>(At(host, count * static_cast<int64_t>(sizeof(T)), false));
  }
  template <typename T>
  T* Out(T* host, int64_t count) {
    return static_cast<T*>(At(host, count * static_cast<int64_t>(sizeof(T)), true));
  }
  ConstParam In(ConstParam host, int64_t count) {
    return {At(host.data, count * SizeOf(host.dtype), false), host.dtype};
  }
  GradOut Out(GradOut host, int64_t count) {
    return {At(host.data, count * SizeOf(host.dtype), true), host.dtype, host.accumulate};
  }
  const void* In(const void* host, DType dtype, int64_t count) {
    return At(host, count * SizeOf(dtype), false);
  }
  void* Out(void* host, DType dtype, int64_t count) {
    return At(host, count * SizeOf(dtype), true);
  }
  AdamWState In(const AdamWState& host, int64_t count) { return State(host, count, false); }
  AdamWState Out(const AdamWState& host, int64_t count) { return State(host, count, true); }

 private:
  struct Piece {
    void* host;
    Buffer there;
    bool written;
  };

  AdamWState State(const AdamWState& host, int64_t count, bool written) {
    const auto at = [&](float* array) {
      return static_cast<float*>(At(array, count * SizeOf(DType::kF32), written));
    };
    return {at(host.master), at(host.m), at(host.v)};
  }

  void* At(const void* host, int64_t bytes, bool written) {
    if (host == nullptr || bytes == 0) return nullptr;
    for (Piece& piece : pieces_) {
      if (piece.host != host) continue;
      piece.written = piece.written || written;
      return piece.there.data();
    }
    Buffer there(meter_, Pool::kActivations, bytes);
    device_.CopyIn(there.data(), host, bytes);
    pieces_.push_back({const_cast<void*>(host), std::move(there), written});
    return pieces_.back().there.data();
  }

  Accelerator& device_;
  MemoryMeter& meter_;
  std::vector<Piece> pieces_;
};

class CopiedOps final : public Ops {
 public:
  CopiedOps(std::unique_ptr<Accelerator> accelerator, bool bf16)
      : device_(std::move(accelerator)),
        meter_(device_->memory()),
        on_(device_->MakeOps({.meter = &meter_, .bf16 = bf16})) {}

  void LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                     int64_t in, int64_t out) override {
    Copies at(*device_, meter_);
    on_->LinearForward(at.In(x, rows * in), at.In(w, out * in), at.In(bias, out),
                       at.Out(y, rows * out), rows, in, out);
  }
  void LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows, int64_t in,
                           int64_t out, bool accumulate) override {
    Copies at(*device_, meter_);
    on_->LinearBackwardInput(at.In(dy, rows * out), at.In(w, out * in), at.Out(dx, rows * in), rows,
                             in, out, accumulate);
  }
  void LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                            int64_t rows, int64_t in, int64_t out) override {
    Copies at(*device_, meter_);
    on_->LinearBackwardWeight(at.In(dy, rows * out), at.In(x, rows * in), at.Out(dw, out * in),
                              at.Out(dbias, out), rows, in, out);
  }
  void BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->BiasBackward(at.In(dy, rows * channels), at.Out(dbias, channels), rows, channels);
  }
  void EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                        float* x, int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->EmbeddingForward(at.In(tokens, rows), at.In(wte, vocab * channels), first, vocab,
                          at.Out(x, rows * channels), rows, channels);
  }
  void EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                         int64_t vocab, int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->EmbeddingBackward(at.In(tokens, rows), at.In(dx, rows * channels),
                           at.Out(dwte, vocab * channels), first, vocab, rows, channels);
  }
  void PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row, int64_t rows,
                       int64_t tokens_per_sequence, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->PositionForward(at.In(x, rows * channels), at.In(wpe, tokens_per_sequence * channels),
                         at.Out(y, rows * channels), first_row, rows, tokens_per_sequence,
                         channels);
  }
  void PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                        int64_t tokens_per_sequence, int64_t channels, int64_t context) override {
    Copies at(*device_, meter_);
    on_->PositionBackward(at.In(dx, rows * channels), at.Out(dwpe, context * channels), first_row,
                          rows, tokens_per_sequence, channels, context);
  }
  void LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                        float* rstd, int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->LayerNormForward(at.In(x, rows * channels), at.In(w, channels), at.In(b, channels),
                          at.Out(y, rows * channels), at.Out(mean, rows), at.Out(rstd, rows), rows,
                          channels);
  }
  void LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                         const float* rstd, float* dx, bool accumulate, GradOut dw, GradOut db,
                         int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->LayerNormBackward(at.In(dy, rows * channels), at.In(x, rows * channels),
                           at.In(w, channels), at.In(mean, rows), at.In(rstd, rows),
                           at.Out(dx, rows * channels), accumulate, at.Out(dw, channels),
                           at.Out(db, channels), rows, channels);
  }
  void RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd, int64_t rows,
                      int64_t channels) override {
    Copies at(*device_, meter_);
    on_->RmsNormForward(at.In(x, rows * channels), at.In(w, channels), eps,
                        at.Out(y, rows * channels), at.Out(rstd, rows), rows, channels);
  }
  void RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd, float* dx,
                       bool accumulate, GradOut dw, int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->RmsNormBackward(at.In(dy, rows * channels), at.In(x, rows * channels), at.In(w, channels),
                         at.In(rstd, rows), at.Out(dx, rows * channels), accumulate,
                         at.Out(dw, channels), rows, channels);
  }
  void GeluForward(const float* x, float* y, int64_t elements) override {
    Copies at(*device_, meter_);
    on_->GeluForward(at.In(x, elements), at.Out(y, elements), elements);
  }
  void GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) override {
    Copies at(*device_, meter_);
    on_->GeluBackward(at.In(dy, elements), at.In(x, elements), at.Out(dx, elements), elements);
  }
  void SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) override {
    Copies at(*device_, meter_);
    on_->SwiGluForward(at.In(gate_up, 2 * rows * ffn), at.Out(y, rows * ffn), rows, ffn);
  }
  void SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                      int64_t ffn) override {
    Copies at(*device_, meter_);
    on_->SwiGluBackward(at.In(dy, rows * ffn), at.In(gate_up, 2 * rows * ffn),
                        at.Out(dgate_up, 2 * rows * ffn), rows, ffn);
  }
  void ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                       int64_t rows, int64_t channels) override {
    Copies at(*device_, meter_);
    on_->ResidualForward(at.In(x, rows * channels), at.In(bias, channels),
                         at.In(residual, rows * channels), at.Out(y, rows * channels), rows,
                         channels);
  }
  void RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                   int64_t head_size) override {
    Copies at(*device_, meter_);
    on_->RotaryTable(params, at.Out(table, tokens * head_size), tokens, head_size);
  }
  void RotaryForward(float* qkv, const float* table, const AttentionShape& shape) override {
    Copies at(*device_, meter_);
    on_->RotaryForward(at.Out(qkv, RowsOf(shape) * shape.qkv_channels()),
                       at.In(table, shape.tokens * shape.head_size), shape);
  }
  void RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) override {
    Copies at(*device_, meter_);
    on_->RotaryBackward(at.Out(dqkv, RowsOf(shape) * shape.qkv_channels()),
                        at.In(table, shape.tokens * shape.head_size), shape);
  }
  void AttentionForward(const float* qkv, float* out, float* lse,
                        const AttentionShape& shape) override {
    Copies at(*device_, meter_);
    on_->AttentionForward(at.In(qkv, RowsOf(shape) * shape.qkv_channels()),
                          at.Out(out, RowsOf(shape) * shape.heads * shape.head_size),
                          at.Out(lse, RowsOf(shape) * shape.heads), shape);
  }
  void AttentionBackward(const float* dout, const float* qkv, const float* out, const float* lse,
                         float* dqkv, const AttentionShape& shape) override {
    Copies at(*device_, meter_);
    const int64_t outputs = RowsOf(shape) * shape.heads * shape.head_size;
    on_->AttentionBackward(at.In(dout, outputs), at.In(qkv, RowsOf(shape) * shape.qkv_channels()),
                           at.In(out, outputs), at.In(lse, RowsOf(shape) * shape.heads),
                           at.Out(dqkv, RowsOf(shape) * shape.qkv_channels()), shape);
  }
  void CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                            const LossOptions& options, int64_t rows, int64_t vocab,
                            double& loss) override {
    Copies at(*device_, meter_);
    on_->CrossEntropyBackward(at.Out(logits, rows * vocab), at.In(targets, rows), scale, options,
                              rows, vocab, loss);
  }
  void CrossEntropy(const float* logits, const int32_t* targets, int64_t rows, int64_t vocab,
                    double& loss) override {
    Copies at(*device_, meter_);
    on_->CrossEntropy(at.In(logits, rows * vocab), at.In(targets, rows), rows, vocab, loss);
  }
  void VocabularyStatistics(float* logits, const int32_t* targets, const VocabularyPart& part,
                            LogitStatistics* statistics, int64_t rows) override {
    Copies at(*device_, meter_);
    on_->VocabularyStatistics(at.Out(logits, rows * part.columns), at.In(targets, rows), part,
                              at.Out(statistics, rows), rows);
  }
  void JoinStatistics(const LogitStatistics* of_members, int members, const int32_t* targets,
                      LogitStatistics* joined, int64_t rows, double& loss) override {
    Copies at(*device_, meter_);
    on_->JoinStatistics(at.In(of_members, members * rows), members, at.In(targets, rows),
                        at.Out(joined, rows), rows, loss);
  }
  void VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                          const LogitStatistics* own, const LogitStatistics* joined, float scale,
                          const LossOptions& options, int64_t rows) override {
    Copies at(*device_, meter_);
    on_->VocabularyGradient(at.Out(logits, rows * part.columns), at.In(targets, rows), part,
                            at.In(own, rows), at.In(joined, rows), scale, options, rows);
  }
  void AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
             DType grad_dtype, const AdamWParams& params, int64_t elements) override {
    Copies at(*device_, meter_);
    const AdamWState read = at.In(from, elements);
    const AdamWState written = at.Out(to, elements);
    on_->AdamW(at.Out(param, elements), read, written, at.In(grad, grad_dtype, elements),
               grad_dtype, params, elements);
  }
  void AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) override {
    Copies at(*device_, meter_);
    on_->AddSquares(at.In(x, dtype, elements), dtype, elements, sum);
  }
  void AddRounded(void* dst, const void* src, DType dtype, int64_t elements) override {
    Copies at(*device_, meter_);
    on_->AddRounded(at.Out(dst, dtype, elements), at.In(src, dtype, elements), dtype, elements);
  }
  void Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
            int64_t elements) override {
    Copies at(*device_, meter_);
    on_->Cast(at.In(src, src_dtype, elements), src_dtype, at.Out(dst, dst_dtype, elements),
              dst_dtype, elements);
  }

 private:
  const std::unique_ptr<Accelerator> device_;
  MemoryMeter meter_;
  const std::unique_ptr<Ops> on_;
};

}  // namespace

std::unique_ptr<Ops> MakeCopiedOps(std::unique_ptr<Accelerator> accelerator, bool bf16) {
  return std::make_unique<CopiedOps>(std::move(accelerator), bf16);
}

}  // namespace sherd
