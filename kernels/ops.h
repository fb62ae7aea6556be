#pragma once

#include <array>
#include <cstdint>

#include "kernels/dtype.h"

namespace sherd {

// Non-owning pointers with an element type. Activations are fp32 on this interface's CPU
// implementation; parameters and their gradients are of the job's types.
struct ConstParam {
  const void* data;
  DType dtype;
};
struct GradOut {
  void* data;
  DType dtype;
  // False: overwrite. True: add to what is there, in fp32, and round once.
  bool accumulate;
};

// Shapes: B sequences of T tokens, N = B·T rows, C channels, H heads of size D = C / H, K heads of
// keys and values, V vocabulary entries, F feed-forward channels.
struct AttentionShape {
  int64_t batch, tokens, heads;
  // Divides `heads`: key and value head j serves the query heads j·H/K … (j + 1)·H/K − 1 (Ainslie
  // et al. 2023). As many as heads: every head has its own.
  int64_t kv_heads;
  int64_t head_size;

  // Of one token of qkv: its H query heads, then K key heads, then K value heads.
  int64_t qkv_channels() const { return (heads + 2 * kv_heads) * head_size; }
};

// Frequencies of a rotary position embedding (Su et al. 2021): pair i of a head turns by
// theta^(−2i/D) a token. The scaling rule is that of the published Llama 3.1 and 3.2 models: waves
// longer than original_context / low_freq_factor tokens turn `factor` times slower, waves shorter
// than original_context / high_freq_factor as before, and those between by a share of both that is
// linear in the wave number. A factor of 1 scales nothing.
struct RotaryParams {
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;
};

// The entries of the vocabulary that one member of a group that splits it has.
struct VocabularyPart {
  // [first, first + count).
  int64_t first, count;
  // Columns of its logits: `count`, then padding.
  int64_t columns;
  // Entries of the whole vocabulary.
  int64_t vocabulary;

  bool Has(int32_t token) const { return token >= first && token < first + count; }
};

// What is trained for beside the cross-entropy: it changes gradients, not the loss that is told.
struct LossOptions {
  // Weight of the square of log Σ e^logit of a row, which keeps it near 0 (Chowdhery et al. 2022,
  // section 5).
  double z_loss = 0;
  // This part of the target's probability is spread evenly over the vocabulary, the target included
  // (Szegedy et al. 2016, section 7). Logits are finite then.
  double label_smoothing = 0;
};

// What is known of a row of logits from some of its columns.
struct LogitStatistics {
  float highest;  // the largest logit; -infinity when there is none
  float sum;      // Σ e^(logit − highest)
  float target;   // the logit of the row's target; 0 when it is not among them
};

struct AdamWParams {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  // Counts from 1.
  int64_t step = 1;
  // Multiplies every gradient first: the clipping coefficient.
  float grad_scale = 1;
};

// What AdamW keeps of its parameters: (elements) each.
struct AdamWState {
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;

  AdamWState From(int64_t begin) const { return {master + begin, m + begin, v + begin}; }
};

// An exact sum of squares of floats: order-free, hence independent of how shards are cut.
// A fixed-point number of 640 bits, least significant limb first, that covers every square of a
// finite float and 2^60 of them. A NaN or infinity among the inputs is remembered instead of
// summed.
struct ExactSum {
  // The unit of limbs[0] is 2^kLowestExponent, the square of the smallest float.
  static constexpr int kLowestExponent = -298;
  std::array<uint64_t, 10> limbs{};
  uint64_t nonfinite = 0;

  void Add(const ExactSum& other);
  // The sum rounded to nearest; NaN when anything not finite went in.
  double Value() const;
};

// The whole vocabulary of the compute back ends. Enqueues on the device's compute stream (the CPU
// computes at once). Pointers are device memory and may not overlap unless stated. Sizes may be 1
// and odd; with zero rows nothing is read, and sums over rows are zero. The result depends neither
// on the number of threads nor on the alignment of pointers; what is element-wise gives each
// element the same bits however a range is cut into calls. One caller at a time.
class Ops {
 public:
  virtual ~Ops() = default;

  // y (N, out) = x (N, in) · wᵀ + bias; w (out, in); bias (out) or data == nullptr.
  virtual void LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                             int64_t in, int64_t out) = 0;
  // dx (N, in) = dy (N, out) · w, added to dx when `accumulate`.
  virtual void LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows,
                                   int64_t in, int64_t out, bool accumulate) = 0;
  // dw (out, in) = dyᵀ · x; dbias (out) = column sums of dy, unless its data == nullptr.
  virtual void LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                                    int64_t rows, int64_t in, int64_t out) = 0;

  // dbias (C) = column sums of dy (N, C).
  virtual void BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) = 0;

  // x (N, C) = wte[token − first], zeros for tokens outside of [first, first + vocab); tokens (N),
  // wte (vocab, C).
  virtual void EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                                float* x, int64_t rows, int64_t channels) = 0;
  // dwte (vocab, C) = sums of the dx rows of each token, in row order.
  virtual void EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte,
                                 int64_t first, int64_t vocab, int64_t rows, int64_t channels) = 0;

  // y (N, C) = x + wpe[position]; y may be x. Rows are those from `first_row` on of sequences of T
  // tokens, one behind the other.
  virtual void PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row,
                               int64_t rows, int64_t tokens_per_sequence, int64_t channels) = 0;
  // dwpe (context, C) = sums of the dx rows of each position, in row order.
  virtual void PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                                int64_t tokens_per_sequence, int64_t channels, int64_t context) = 0;

  // y = (x − mean) · rstd · w + b over the last dimension, eps 1e-5; mean, rstd (N) are kept for
  // backward.
  virtual void LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                                float* rstd, int64_t rows, int64_t channels) = 0;
  // dx is added to when `accumulate` (the residual path).
  virtual void LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                                 const float* rstd, float* dx, bool accumulate, GradOut dw,
                                 GradOut db, int64_t rows, int64_t channels) = 0;

  // y = x · rstd · w over the last dimension, rstd = 1 / √(mean(x²) + eps) (Zhang & Sennrich 2019);
  // rstd (N) is kept for backward.
  virtual void RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd,
                              int64_t rows, int64_t channels) = 0;
  // dx is added to when `accumulate`.
  virtual void RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd,
                               float* dx, bool accumulate, GradOut dw, int64_t rows,
                               int64_t channels) = 0;

  // tanh approximation of GELU, as GPT-2: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))).
  virtual void GeluForward(const float* x, float* y, int64_t elements) = 0;
  // dx = dy · gelu'(x); dx may be dy.
  virtual void GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) = 0;

  // pre (N, out) = x · wᵀ + bias, y (N, out) = gelu(pre). Unless y is wanted it may hold anything
  // after; pre has the same bits either way. A back end that computes both at once may have other
  // last bits, of y and of pre, than the two operations have one after the other.
  virtual void LinearGeluForward(const float* x, ConstParam w, ConstParam bias, float* pre,
                                 float* y, bool y_wanted, int64_t rows, int64_t in, int64_t out) {
    LinearForward(x, w, bias, pre, rows, in, out);
    if (y_wanted) GeluForward(pre, y, rows * out);
  }
  // dpre (N, in) = dy (N, out) · w · gelu'(pre (N, in)), back through a layer and the GELU that its
  // input is. Last bits as above.
  virtual void LinearGeluBackwardInput(const float* dy, ConstParam w, const float* pre, float* dpre,
                                       int64_t rows, int64_t in, int64_t out) {
    LinearBackwardInput(dy, w, dpre, rows, in, out, /*accumulate=*/false);
    GeluBackward(dpre, pre, dpre, rows * in);
  }

  // y (N, F) = silu(gate) · up with silu(g) = g / (1 + e^−g) (Shazeer 2020); gate_up (N, 2F) holds
  // each row's gate, then its up.
  virtual void SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) = 0;
  // dgate_up (N, 2F) is overwritten; it may be gate_up.
  virtual void SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                              int64_t ffn) = 0;

  // y (N, C) = (x + bias) + residual; bias (C) or data == nullptr; y may be x or residual.
  virtual void ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                               int64_t rows, int64_t channels) = 0;

  // table (T, 2, D / 2): cosines, then sines, of the angles at positions 0 … T − 1, worked out in
  // double precision. D is even.
  virtual void RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                           int64_t head_size) = 0;
  // Turns the queries and keys of qkv (B, T, H + 2K, D) in place by their position's angles; values
  // stay. The first half of a head pairs with its second: (a, b) → (a cos − b sin, b cos + a sin).
  virtual void RotaryForward(float* qkv, const float* table, const AttentionShape& shape) = 0;
  // Turns gradients back.
  virtual void RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) = 0;

  // Causal attention with online softmax, scale 1/√D; never stores T × T. qkv (B, T, H + 2K, D),
  // out (B, T, H, D), lse (B, H, T) = log-sum-exp of the scaled scores, for backward.
  virtual void AttentionForward(const float* qkv, float* out, float* lse,
                                const AttentionShape& shape) = 0;
  // dqkv (B, T, H + 2K, D) is overwritten; the gradients of a key and value head are summed over
  // the heads that it serves, in their order.
  virtual void AttentionBackward(const float* dout, const float* qkv, const float* out,
                                 const float* lse, float* dqkv, const AttentionShape& shape) = 0;

  // logits (N, V) are replaced by d(objective · scale)/dlogits, where the objective is the sum of
  // token losses in nats with what the options add; the token losses alone are added to `loss`,
  // unscaled, one after another in row order. targets (N) in [0, V); a negative target counts
  // nothing and gets zero gradients. Of a row with softmax p, target t and z = log Σ e^logit it is
  // scale · ((1 + 2 · z_loss · z) · p_i − (1 − label_smoothing) · [i = t] − label_smoothing / V).
  virtual void CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                                    const LossOptions& options, int64_t rows, int64_t vocab,
                                    double& loss) = 0;
  // The loss alone; logits stay.
  virtual void CrossEntropy(const float* logits, const int32_t* targets, int64_t rows,
                            int64_t vocab, double& loss) = 0;

  // Cross-entropy where columns are split over members, in three parts. Of a member's logits (N,
  // columns) the statistics (N); its logits are replaced by e^(logit − highest). targets (N) are of
  // the whole vocabulary, negative ones as above.
  virtual void VocabularyStatistics(float* logits, const int32_t* targets,
                                    const VocabularyPart& part, LogitStatistics* statistics,
                                    int64_t rows) = 0;
  // Of all columns from those of all members (members, N), taken in the members' order; adds the
  // token losses to `loss` as above.
  virtual void JoinStatistics(const LogitStatistics* of_members, int members,
                              const int32_t* targets, LogitStatistics* joined, int64_t rows,
                              double& loss) = 0;
  // What VocabularyStatistics left of the member's logits, with its own statistics, is replaced by
  // d(objective · scale)/dlogits; that of padding is zero.
  virtual void VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                                  const LogitStatistics* own, const LogitStatistics* joined,
                                  float scale, const LossOptions& options, int64_t rows) = 0;

  // Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2) with bias correction. Makes `to`
  // of `from`, which may be the same, and grad (elements, of grad_dtype), in fp32, and writes
  // `param`: the new master as it is or rounded to bf16; nothing more when param.data == to.master.
  virtual void AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
                     DType grad_dtype, const AdamWParams& params, int64_t elements) = 0;

  // sum += Σ x², exactly.
  virtual void AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) = 0;

  // dst = round(dst + src), element by element, in fp32 then rounded to dtype. A node of the
  // reduction tree.
  virtual void AddRounded(void* dst, const void* src, DType dtype, int64_t elements) = 0;
  virtual void Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                    int64_t elements) = 0;
};

}  // namespace sherd
