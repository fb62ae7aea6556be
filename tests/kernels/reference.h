#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

// The operations of kernels/ops.h once more, written down naively in double precision. Shapes are
// those of ops.h; results are returned. reference_test.cc holds the gradients against finite
// differences.
namespace sherd::reference {

using Doubles = std::vector<double>;
using Tokens = std::vector<int32_t>;

// `bias` may be empty.
Doubles LinearForward(const Doubles& x, const Doubles& w, const Doubles& bias, int64_t rows,
                      int64_t in, int64_t out);
struct LinearGradients {
  Doubles dx, dw, dbias;
};
LinearGradients LinearBackward(const Doubles& dy, const Doubles& x, const Doubles& w, int64_t rows,
                               int64_t in, int64_t out);

Doubles EmbeddingForward(const Tokens& tokens, const Doubles& wte, const Doubles& wpe,
                         int64_t batch, int64_t tokens_per_sequence, int64_t channels);
struct EmbeddingGradients {
  Doubles dwte, dwpe;
};
EmbeddingGradients EmbeddingBackward(const Tokens& tokens, const Doubles& dx, int64_t batch,
                                     int64_t tokens_per_sequence, int64_t channels, int64_t vocab,
                                     int64_t context);

Doubles LayerNormForward(const Doubles& x, const Doubles& w, const Doubles& b, int64_t rows,
                         int64_t channels);
struct LayerNormGradients {
  Doubles dx, dw, db;
};
LayerNormGradients LayerNormBackward(const Doubles& dy, const Doubles& x, const Doubles& w,
                                     int64_t rows, int64_t channels);

Doubles RmsNormForward(const Doubles& x, const Doubles& w, double eps, int64_t rows,
                       int64_t channels);
struct RmsNormGradients {
  Doubles dx, dw;
};
RmsNormGradients RmsNormBackward(const Doubles& dy, const Doubles& x, const Doubles& w, double eps,
                                 int64_t rows, int64_t channels);

Doubles SwiGluForward(const Doubles& gate_up, int64_t rows, int64_t ffn);
Doubles SwiGluBackward(const Doubles& dy, const Doubles& gate_up, int64_t rows, int64_t ffn);

// Of pair `index` of a head, in radians a token; spelt out by wavelengths.
double RotaryFrequency(const RotaryParams& params, int64_t index, int64_t head_size);
// qkv with queries and keys turned by their angles, or back.
Doubles Rotary(const Doubles& qkv, const RotaryParams& params, const AttentionShape& shape,
               bool back);

double Gelu(double x);
double GeluDerivative(double x);

struct AttentionOutput {
  Doubles out, lse;
};
AttentionOutput AttentionForward(const Doubles& qkv, const AttentionShape& shape);
Doubles AttentionBackward(const Doubles& dout, const Doubles& qkv, const AttentionShape& shape);

double CrossEntropy(const Doubles& logits, const Tokens& targets, int64_t rows, int64_t vocab);
Doubles CrossEntropyGradient(const Doubles& logits, const Tokens& targets, double scale,
                             int64_t rows, int64_t vocab, const LossOptions& options = {});
// What is trained for: the cross-entropy with the smoothed targets, and the weighted squares of the
// rows' log Σ e^logit.
double Objective(const Doubles& logits, const Tokens& targets, int64_t rows, int64_t vocab,
                 const LossOptions& options);

// In place.
void AdamW(Doubles& master, Doubles& m, Doubles& v, const Doubles& grad, const AdamWParams& params);

}  // namespace sherd::reference
