#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>

namespace sherd::reference {
namespace {

constexpr double kNormEps = 1e-5;
const double kRootTwoOverPi = std::sqrt(2.0 / std::acos(-1.0));

size_t Size(int64_t elements) { return static_cast<size_t>(elements); }

struct Moments {
  double mean, rstd;
};
Moments MomentsOf(const double* x, int64_t channels) {
  double mean = 0;
  for (int64_t c = 0; c < channels; ++c) mean += x[c];
  mean /= static_cast<double>(channels);
  double variance = 0;
  for (int64_t c = 0; c < channels; ++c) variance += (x[c] - mean) * (x[c] - mean);
  variance /= static_cast<double>(channels);
  return {mean, 1 / std::sqrt(variance + kNormEps)};
}

double InverseRms(const double* x, double eps, int64_t channels) {
  double squares = 0;
  for (int64_t c = 0; c < channels; ++c) squares += x[c] * x[c];
  return 1 / std::sqrt(squares / static_cast<double>(channels) + eps);
}

double LogSumExp(const double* values, int64_t count) {
  const double highest = *std::max_element(values, values + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(values[i] - highest);
  return highest + std::log(sum);
}

// Offsets into qkv (B, T, H + 2K, D) and out (B, T, H, D); part 0 is the queries, 1 the keys, 2 the
// values.
struct HeadIndex {
  const AttentionShape& shape;
  int64_t b, h;
  size_t Qkv(int64_t t, int part, int64_t d) const {
    const int64_t kv_head = h * shape.kv_heads / shape.heads;
    const int64_t slot = part == 0 ? h : shape.heads + (part - 1) * shape.kv_heads + kv_head;
    const int64_t slots = shape.heads + 2 * shape.kv_heads;
    return Size(((b * shape.tokens + t) * slots + slot) * shape.head_size + d);
  }
  size_t Out(int64_t t, int64_t d) const {
    return Size(((b * shape.tokens + t) * shape.heads + h) * shape.head_size + d);
  }
  size_t Lse(int64_t t) const { return Size((b * shape.heads + h) * shape.tokens + t); }
};

// Scaled scores of query t against keys 0…t.
Doubles Scores(const Doubles& qkv, const HeadIndex& at, int64_t t) {
  Doubles scores(Size(t + 1));
  for (int64_t s = 0; s <= t; ++s) {
    for (int64_t d = 0; d < at.shape.head_size; ++d) {
      scores[Size(s)] += qkv[at.Qkv(t, 0, d)] * qkv[at.Qkv(s, 1, d)];
    }
    scores[Size(s)] /= std::sqrt(static_cast<double>(at.shape.head_size));
  }
  return scores;
}

}  // namespace

Doubles LinearForward(const Doubles& x, const Doubles& w, const Doubles& bias, int64_t rows,
                      int64_t in, int64_t out) {
  Doubles y(Size(rows * out));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[Size(o)];
      for (int64_t i = 0; i < in; ++i) sum += x[Size(n * in + i)] * w[Size(o * in + i)];
      y[Size(n * out + o)] = sum;
    }
  }
  return y;
}

LinearGradients LinearBackward(const Doubles& dy, const Doubles& x, const Doubles& w, int64_t rows,
                               int64_t in, int64_t out) {
  LinearGradients g{Doubles(Size(rows * in)), Doubles(Size(out * in)), Doubles(Size(out))};
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < out; ++o) {
      const double up = dy[Size(n * out + o)];
      g.dbias[Size(o)] += up;
      for (int64_t i = 0; i < in; ++i) {
        g.dx[Size(n * in + i)] += up * w[Size(o * in + i)];
        g.dw[Size(o * in + i)] += up * x[Size(n * in + i)];
      }
    }
  }
  return g;
}

Doubles EmbeddingForward(const Tokens& tokens, const Doubles& wte, const Doubles& wpe,
                         int64_t batch, int64_t tokens_per_sequence, int64_t channels) {
  Doubles x(Size(batch * tokens_per_sequence * channels));
  for (int64_t n = 0; n < batch * tokens_per_sequence; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      x[Size(n * channels + c)] = wte[Size(tokens[Size(n)] * channels + c)] +
                                  wpe[Size(n % tokens_per_sequence * channels + c)];
    }
  }
  return x;
}

EmbeddingGradients EmbeddingBackward(const Tokens& tokens, const Doubles& dx, int64_t batch,
                                     int64_t tokens_per_sequence, int64_t channels, int64_t vocab,
                                     int64_t context) {
  EmbeddingGradients g{Doubles(Size(vocab * channels)), Doubles(Size(context * channels))};
  for (int64_t n = 0; n < batch * tokens_per_sequence; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      const double up = dx[Size(n * channels + c)];
      g.dwte[Size(tokens[Size(n)] * channels + c)] += up;
      g.dwpe[Size(n % tokens_per_sequence * channels + c)] += up;
    }
  }
  return g;
}

Doubles LayerNormForward(const Doubles& x, const Doubles& w, const Doubles& b, int64_t rows,
                         int64_t channels) {
  Doubles y(x.size());
  for (int64_t n = 0; n < rows; ++n) {
    const Moments moments = MomentsOf(&x[Size(n * channels)], channels);
    for (int64_t c = 0; c < channels; ++c) {
      const size_t at = Size(n * channels + c);
      y[at] = (x[at] - moments.mean) * moments.rstd * w[Size(c)] + b[Size(c)];
    }
  }
  return y;
}

LayerNormGradients LayerNormBackward(const Doubles& dy, const Doubles& x, const Doubles& w,
                                     int64_t rows, int64_t channels) {
  LayerNormGradients g{Doubles(x.size()), Doubles(Size(channels)), Doubles(Size(channels))};
  for (int64_t n = 0; n < rows; ++n) {
    const Moments moments = MomentsOf(&x[Size(n * channels)], channels);
    double sum = 0;
    double product = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const size_t at = Size(n * channels + c);
      const double normed = (x[at] - moments.mean) * moments.rstd;
      g.dw[Size(c)] += dy[at] * normed;
      g.db[Size(c)] += dy[at];
      sum += dy[at] * w[Size(c)];
      product += dy[at] * w[Size(c)] * normed;
    }
    const double count = static_cast<double>(channels);
    for (int64_t c = 0; c < channels; ++c) {
      const size_t at = Size(n * channels + c);
      const double normed = (x[at] - moments.mean) * moments.rstd;
      g.dx[at] = moments.rstd * (dy[at] * w[Size(c)] - sum / count - normed * product / count);
    }
  }
  return g;
}

Doubles RmsNormForward(const Doubles& x, const Doubles& w, double eps, int64_t rows,
                       int64_t channels) {
  Doubles y(x.size());
  for (int64_t n = 0; n < rows; ++n) {
    const double rstd = InverseRms(&x[Size(n * channels)], eps, channels);
    for (int64_t c = 0; c < channels; ++c) {
      y[Size(n * channels + c)] = x[Size(n * channels + c)] * rstd * w[Size(c)];
    }
  }
  return y;
}

RmsNormGradients RmsNormBackward(const Doubles& dy, const Doubles& x, const Doubles& w, double eps,
                                 int64_t rows, int64_t channels) {
  RmsNormGradients g{Doubles(x.size()), Doubles(Size(channels))};
  for (int64_t n = 0; n < rows; ++n) {
    const double rstd = InverseRms(&x[Size(n * channels)], eps, channels);
    double product = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const size_t at = Size(n * channels + c);
      g.dw[Size(c)] += dy[at] * x[at] * rstd;
      product += dy[at] * w[Size(c)] * x[at];
    }
    for (int64_t c = 0; c < channels; ++c) {
      const size_t at = Size(n * channels + c);
      g.dx[at] = rstd * dy[at] * w[Size(c)] -
                 x[at] * rstd * rstd * rstd * product / static_cast<double>(channels);
    }
  }
  return g;
}

Doubles SwiGluForward(const Doubles& gate_up, int64_t rows, int64_t ffn) {
  Doubles y(Size(rows * ffn));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t f = 0; f < ffn; ++f) {
      const double gate = gate_up[Size(n * 2 * ffn + f)];
      y[Size(n * ffn + f)] = gate / (1 + std::exp(-gate)) * gate_up[Size((n * 2 + 1) * ffn + f)];
    }
  }
  return y;
}

Doubles SwiGluBackward(const Doubles& dy, const Doubles& gate_up, int64_t rows, int64_t ffn) {
  Doubles gradient(gate_up.size());
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t f = 0; f < ffn; ++f) {
      const size_t gate_at = Size(n * 2 * ffn + f);
      const size_t up_at = Size((n * 2 + 1) * ffn + f);
      const double gate = gate_up[gate_at];
      const double logistic = 1 / (1 + std::exp(-gate));
      const double outer = dy[Size(n * ffn + f)];
      gradient[gate_at] = outer * gate_up[up_at] * logistic * (1 + gate * (1 - logistic));
      gradient[up_at] = outer * gate * logistic;
    }
  }
  return gradient;
}

double RotaryFrequency(const RotaryParams& params, int64_t index, int64_t head_size) {
  const double frequency =
      1 / std::pow(params.theta, 2 * static_cast<double>(index) / static_cast<double>(head_size));
  const double context = static_cast<double>(params.original_context);
  const double wavelength = 2 * std::acos(-1.0) / frequency;
  if (wavelength < context / params.high_freq_factor) return frequency;
  if (wavelength > context / params.low_freq_factor) return frequency / params.factor;
  const double smooth = (context / wavelength - params.low_freq_factor) /
                        (params.high_freq_factor - params.low_freq_factor);
  return (1 - smooth) * frequency / params.factor + smooth * frequency;
}

Doubles Rotary(const Doubles& qkv, const RotaryParams& params, const AttentionShape& shape,
               bool back) {
  Doubles turned = qkv;
  const int64_t half = shape.head_size / 2;
  for (int64_t n = 0; n < shape.batch * shape.tokens; ++n) {
    for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = (back ? -1 : 1) * static_cast<double>(n % shape.tokens) *
                             RotaryFrequency(params, i, shape.head_size);
        const size_t a = Size(n * shape.qkv_channels() + h * shape.head_size + i);
        const size_t b = a + Size(half);
        turned[a] = qkv[a] * std::cos(angle) - qkv[b] * std::sin(angle);
        turned[b] = qkv[b] * std::cos(angle) + qkv[a] * std::sin(angle);
      }
    }
  }
  return turned;
}

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)));
}

double GeluDerivative(double x) {
  const double tanh = std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x));
  const double inner = kRootTwoOverPi * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * inner;
}

AttentionOutput AttentionForward(const Doubles& qkv, const AttentionShape& shape) {
  const int64_t heads = shape.batch * shape.heads;
  AttentionOutput result{Doubles(Size(heads * shape.tokens * shape.head_size)),
                         Doubles(Size(heads * shape.tokens))};
  for (int64_t head = 0; head < heads; ++head) {
    const HeadIndex at{shape, head / shape.heads, head % shape.heads};
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const Doubles scores = Scores(qkv, at, t);
      const double lse = LogSumExp(scores.data(), t + 1);
      result.lse[at.Lse(t)] = lse;
      for (int64_t s = 0; s <= t; ++s) {
        const double weight = std::exp(scores[Size(s)] - lse);
        for (int64_t d = 0; d < shape.head_size; ++d) {
          result.out[at.Out(t, d)] += weight * qkv[at.Qkv(s, 2, d)];
        }
      }
    }
  }
  return result;
}

Doubles AttentionBackward(const Doubles& dout, const Doubles& qkv, const AttentionShape& shape) {
  Doubles dqkv(qkv.size());
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    const HeadIndex at{shape, head / shape.heads, head % shape.heads};
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const Doubles scores = Scores(qkv, at, t);
      const double lse = LogSumExp(scores.data(), t + 1);
      Doubles dweights(Size(t + 1));
      double mean = 0;  // of dweights under the weights
      for (int64_t s = 0; s <= t; ++s) {
        const double weight = std::exp(scores[Size(s)] - lse);
        for (int64_t d = 0; d < shape.head_size; ++d) {
          dweights[Size(s)] += dout[at.Out(t, d)] * qkv[at.Qkv(s, 2, d)];
          dqkv[at.Qkv(s, 2, d)] += weight * dout[at.Out(t, d)];
        }
        mean += weight * dweights[Size(s)];
      }
      for (int64_t s = 0; s <= t; ++s) {
        const double dscore = scale * std::exp(scores[Size(s)] - lse) * (dweights[Size(s)] - mean);
        for (int64_t d = 0; d < shape.head_size; ++d) {
          dqkv[at.Qkv(t, 0, d)] += dscore * qkv[at.Qkv(s, 1, d)];
          dqkv[at.Qkv(s, 1, d)] += dscore * qkv[at.Qkv(t, 0, d)];
        }
      }
    }
  }
  return dqkv;
}

double CrossEntropy(const Doubles& logits, const Tokens& targets, int64_t rows, int64_t vocab) {
  double loss = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const int32_t target = targets[Size(n)];
    if (target < 0) continue;
    loss += LogSumExp(&logits[Size(n * vocab)], vocab) - logits[Size(n * vocab + target)];
  }
  return loss;
}

double Objective(const Doubles& logits, const Tokens& targets, int64_t rows, int64_t vocab,
                 const LossOptions& options) {
  double objective = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const int32_t target = targets[Size(n)];
    if (target < 0) continue;
    const double lse = LogSumExp(&logits[Size(n * vocab)], vocab);
    for (int64_t v = 0; v < vocab; ++v) {
      const double probability = (v == target ? 1 - options.label_smoothing : 0.0) +
                                 options.label_smoothing / static_cast<double>(vocab);
      objective += probability * (lse - logits[Size(n * vocab + v)]);
    }
    objective += options.z_loss * lse * lse;
  }
  return objective;
}

Doubles CrossEntropyGradient(const Doubles& logits, const Tokens& targets, double scale,
                             int64_t rows, int64_t vocab, const LossOptions& options) {
  Doubles gradient(logits.size());
  for (int64_t n = 0; n < rows; ++n) {
    const int32_t target = targets[Size(n)];
    if (target < 0) continue;
    const double lse = LogSumExp(&logits[Size(n * vocab)], vocab);
    for (int64_t v = 0; v < vocab; ++v) {
      const double wanted = (v == target ? 1 - options.label_smoothing : 0.0) +
                            options.label_smoothing / static_cast<double>(vocab);
      const double softmax = std::exp(logits[Size(n * vocab + v)] - lse);
      gradient[Size(n * vocab + v)] = scale * (softmax * (1 + 2 * options.z_loss * lse) - wanted);
    }
  }
  return gradient;
}

void AdamW(Doubles& master, Doubles& m, Doubles& v, const Doubles& grad,
           const AdamWParams& params) {
  const double step = static_cast<double>(params.step);
  for (size_t i = 0; i < master.size(); ++i) {
    const double g = grad[i] * params.grad_scale;
    m[i] = params.beta1 * m[i] + (1 - params.beta1) * g;
    v[i] = params.beta2 * v[i] + (1 - params.beta2) * g * g;
    const double m_hat = m[i] / (1 - std::pow(params.beta1, step));
    const double v_hat = v[i] / (1 - std::pow(params.beta2, step));
    master[i] -=
        params.lr * (m_hat / (std::sqrt(v_hat) + params.eps) + params.weight_decay * master[i]);
  }
}

}  // namespace sherd::reference
