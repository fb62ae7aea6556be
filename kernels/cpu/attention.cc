#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tiling.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// Queries against a block of keys: scores (queries, keys) become e^(scale · score − highest), or 0
// where query i does not see a key, which is from first_visible + i on. Raises `highest` (queries),
// adds to `sum` (queries) and rescales `sum` and out (queries, D).
void SoftmaxRows(float* scores, int64_t queries, int64_t keys, int64_t first_visible, float scale,
                 float* highest, float* sum, float* out, int64_t head_size) {
  const FloatTag d;
  const FloatV scale_v = hn::Set(d, scale);
  for (int64_t query = 0; query < queries; ++query, scores += keys, out += head_size) {
    const int64_t visible = std::min(keys, first_visible + query);
    const float before = highest[query];
    const float now = std::max(before, MaxOf(scores, visible) * scale);
    const FloatV now_v = hn::Set(d, now);
    const float added = SumVectors(visible, [=](auto access, int64_t i) HWY_ATTR {
      const FloatV weight = Exp(hn::MulSub(access.Get(scores + i), scale_v, now_v));
      access.Put(weight, scores + i);
      return weight;
    });
    std::fill(scores + visible, scores + keys, 0.0f);
    const float shrink = before == now ? 1.0f : std::exp(before - now);
    highest[query] = now;
    sum[query] = sum[query] * shrink + added;
    if (shrink == 1.0f) continue;
    const FloatV shrink_v = hn::Set(d, shrink);
    ForVectors(head_size, [=](auto access, int64_t i) HWY_ATTR {
      access.Put(hn::Mul(access.Get(out + i), shrink_v), out + i);
    });
  }
}

void ScaleRow(const float* x, float factor, float* y, int64_t count) {
  const FloatV factor_v = hn::Set(FloatTag(), factor);
  ForVectors(count, [=](auto access, int64_t i)
                        HWY_ATTR { access.Put(hn::Mul(access.Get(x + i), factor_v), y + i); });
}

float DotRow(const float* a, const float* b, int64_t count) {
  return SumVectors(count, [=](auto access, int64_t i)
                               HWY_ATTR { return hn::Mul(access.Get(a + i), access.Get(b + i)); });
}

// Queries against a block of keys, as above: scores become weights p = e^(scale · score − lse), and
// dweights (queries, keys) the gradient of the unscaled scores, scale · p · (dp − delta).
void SoftmaxGradientRows(float* scores, float* dweights, int64_t queries, int64_t keys,
                         int64_t first_visible, float scale, const float* lse, const float* delta) {
  const FloatTag d;
  const FloatV scale_v = hn::Set(d, scale);
  for (int64_t query = 0; query < queries; ++query, scores += keys, dweights += keys) {
    const int64_t visible = std::min(keys, first_visible + query);
    const FloatV lse_v = hn::Set(d, lse[query]);
    const FloatV delta_v = hn::Set(d, delta[query]);
    ForVectors(visible, [=](auto access, int64_t i) HWY_ATTR {
      const FloatV weight = Exp(hn::MulSub(access.Get(scores + i), scale_v, lse_v));
      const FloatV off = hn::Sub(access.Get(dweights + i), delta_v);
      access.Put(weight, scores + i);
      access.Put(hn::Mul(hn::Mul(weight, scale_v), off), dweights + i);
    });
    std::fill(scores + visible, scores + keys, 0.0f);
    std::fill(dweights + visible, dweights + keys, 0.0f);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(DotRow);
HWY_EXPORT(SoftmaxGradientRows);

constexpr int64_t kQueries = 64;
// A multiple of kQueries, so that a query sees at least one key of each block up to its own.
constexpr int64_t kKeys = 256;

// Where one head's rows lie; all strides in floats.
struct HeadRows {
  const float *q, *k, *v;
  int64_t stride;  // between tokens of qkv
  int64_t out_offset;
  int64_t out_stride;  // between tokens of out
};

HeadRows RowsOf(const float* qkv, const AttentionShape& shape, int64_t head_index) {
  const int64_t b = head_index / shape.heads;
  const int64_t h = head_index % shape.heads;
  const int64_t kv_head = h / (shape.heads / shape.kv_heads);
  const int64_t stride = shape.qkv_channels();
  const int64_t out_stride = shape.heads * shape.head_size;
  const float* token = qkv + b * shape.tokens * stride;
  const float* k = token + (shape.heads + kv_head) * shape.head_size;
  return {token + h * shape.head_size,
          k,
          k + shape.kv_heads * shape.head_size,
          stride,
          b * shape.tokens * out_stride + h * shape.head_size,
          out_stride};
}

float ScoreScale(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

// Queries [queries.begin, queries.end) of one head. `scratch` has room for (kQueries, kKeys + D).
void ForwardBlock(const HeadRows& rows, Span1D queries, const AttentionShape& shape, float* scratch,
                  float* out, float* lse) {
  const int64_t size = shape.head_size;
  float* scores = scratch;
  float* sums_out = scratch + kQueries * kKeys;
  float highest[kQueries];
  float sum[kQueries] = {};
  std::fill(highest, highest + kQueries, -std::numeric_limits<float>::infinity());
  std::fill(sums_out, sums_out + kQueries * size, 0.0f);
  for (int64_t first = 0; first < queries.end; first += kKeys) {
    const int64_t keys = std::min(kKeys, queries.end - first);
    Gemm(queries.size(), keys, size, {rows.q + queries.begin * rows.stride, rows.stride},
         {rows.k + first * rows.stride, rows.stride, Transpose::kYes}, false, scores, keys);
    HWY_DYNAMIC_DISPATCH(SoftmaxRows)
    (scores, queries.size(), keys, queries.begin + 1 - first, ScoreScale(shape), highest, sum,
     sums_out, size);
    Gemm(queries.size(), size, keys, {scores, keys}, {rows.v + first * rows.stride, rows.stride},
         true, sums_out, size);
  }
  for (int64_t i = 0; i < queries.size(); ++i) {
    HWY_DYNAMIC_DISPATCH(ScaleRow)
    (sums_out + i * size, 1.0f / sum[i], out + (queries.begin + i) * rows.out_stride, size);
    lse[queries.begin + i] = highest[i] + std::log(sum[i]);
  }
}

// Where one head's gradients begin; strides are those of its rows.
struct HeadGradients {
  float *dq, *dk, *dv;
};

void ClearKeysAndValues(const HeadRows& rows, const HeadGradients& gradients,
                        const AttentionShape& shape) {
  for (int64_t t = 0; t < shape.tokens; ++t) {
    float* dk = gradients.dk + t * rows.stride;
    float* dv = gradients.dv + t * rows.stride;
    std::fill(dk, dk + shape.head_size, 0.0f);
    std::fill(dv, dv + shape.head_size, 0.0f);
  }
}

// Writes dq of queries [queries.begin, queries.end) of one head and adds to dk and dv of the keys
// that they see. `scratch` has room for (2, kQueries, kKeys); lse is the head's.
void BackwardBlock(const HeadRows& rows, Span1D queries, const AttentionShape& shape,
                   float* scratch, const float* dout, const float* out, const float* lse,
                   const HeadGradients& gradients) {
  const int64_t size = shape.head_size;
  float* scores = scratch;
  float* dweights = scratch + kQueries * kKeys;
  const Matrix q{rows.q + queries.begin * rows.stride, rows.stride};
  const Matrix dout_block{dout + rows.out_offset + queries.begin * rows.out_stride,
                          rows.out_stride};
  float delta[kQueries];
  for (int64_t i = 0; i < queries.size(); ++i) {
    const int64_t at = rows.out_offset + (queries.begin + i) * rows.out_stride;
    delta[i] = HWY_DYNAMIC_DISPATCH(DotRow)(dout + at, out + at, size);
  }
  for (int64_t first = 0; first < queries.end; first += kKeys) {
    const int64_t keys = std::min(kKeys, queries.end - first);
    const int64_t at = first * rows.stride;
    Gemm(queries.size(), keys, size, q, {rows.k + at, rows.stride, Transpose::kYes}, false, scores,
         keys);
    Gemm(queries.size(), keys, size, dout_block, {rows.v + at, rows.stride, Transpose::kYes}, false,
         dweights, keys);
    HWY_DYNAMIC_DISPATCH(SoftmaxGradientRows)
    (scores, dweights, queries.size(), keys, queries.begin + 1 - first, ScoreScale(shape),
     lse + queries.begin, delta);
    Gemm(keys, size, queries.size(), {scores, keys, Transpose::kYes}, dout_block, true,
         gradients.dv + at, rows.stride);
    Gemm(keys, size, queries.size(), {dweights, keys, Transpose::kYes}, q, true, gradients.dk + at,
         rows.stride);
    Gemm(queries.size(), size, keys, {dweights, keys}, {rows.k + at, rows.stride}, first != 0,
         gradients.dq + queries.begin * rows.stride, rows.stride);
  }
}

}  // namespace

void CpuOps::AttentionForward(const float* qkv, float* out, float* lse,
                              const AttentionShape& shape) {
  const int64_t blocks = CeilDiv(shape.tokens, kQueries);
  const int64_t scratch_floats = kQueries * (kKeys + shape.head_size);
  ReserveOnEachThread(&ThreadScratch::values, scratch_floats);
  pool_.ParallelFor(shape.batch * shape.heads * blocks, [&](int64_t index, int thread) {
    const int64_t head = index / blocks;
    // Longest first: later blocks see more keys.
    const int64_t first = (blocks - 1 - index % blocks) * kQueries;
    const HeadRows rows = RowsOf(qkv, shape, head);
    float* scratch = scratch_[thread].values.Floats(scratch_floats);
    ForwardBlock(rows, {first, std::min(shape.tokens, first + kQueries)}, shape, scratch,
                 out + rows.out_offset, lse + head * shape.tokens);
  });
}

void CpuOps::AttentionBackward(const float* dout, const float* qkv, const float* out,
                               const float* lse, float* dqkv, const AttentionShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  ReserveOnEachThread(&ThreadScratch::values, 2 * kQueries * kKeys);
  // All heads that share keys and values belong to one tile, which adds them up in order.
  pool_.ParallelFor(shape.batch * shape.kv_heads, [&](int64_t kv_head, int thread) {
    float* scratch = scratch_[thread].values.Floats(2 * kQueries * kKeys);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadRows rows = RowsOf(qkv, shape, head);
      const HeadGradients gradients{dqkv + (rows.q - qkv), dqkv + (rows.k - qkv),
                                    dqkv + (rows.v - qkv)};
      if (head == kv_head * group) ClearKeysAndValues(rows, gradients, shape);
      for (int64_t begin = 0; begin < shape.tokens; begin += kQueries) {
        BackwardBlock(rows, {begin, std::min(shape.tokens, begin + kQueries)}, shape, scratch, dout,
                      out, lse + head * shape.tokens, gradients);
      }
    }
  });
}

}  // namespace sherd
#endif
