// Equal bits whatever the number of threads, the alignment of pointers, and the cutting of
// element-wise ranges. F1, F12: shards are cut differently in every world.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/fold.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

// Arrays at a given misalignment, whose contents are compared at the end.
class Arrays {
 public:
  explicit Arrays(int64_t floats_off) : off_(floats_off) {}
  float* Filled(const Floats& values) {
    kept_.emplace_back(values.size() + 32);
    float* base = kept_.back().data();
    // 64-byte aligned, then off by whole floats.
    while (reinterpret_cast<uintptr_t>(base) % 64 != 0) ++base;
    base += off_;
    std::memcpy(base, values.data(), values.size() * sizeof(float));
    spans_.push_back({base, values.size()});
    return base;
  }
  float* Empty(int64_t elements) { return Filled(Floats(static_cast<size_t>(elements))); }
  Floats Contents() const {
    Floats all;
    for (const auto& [data, size] : spans_) all.insert(all.end(), data, data + size);
    return all;
  }

 private:
  int64_t off_;
  std::vector<Floats> kept_;
  std::vector<std::pair<const float*, size_t>> spans_;
};

// A transformer block's worth of operations; everything written ends up in the result.
Floats RunAll(int threads, int64_t floats_off, DType dtype) {
  const int64_t rows = 150, channels = 264, wide = 530, vocab = 301;
  const auto ops = MakeCpuOps(threads);
  Draw draw(5);
  Arrays arrays(floats_off);
  const auto param = [&](int64_t elements) -> ConstParam {
    return {arrays.Filled(draw.Normal(elements)), dtype};
  };
  const auto grad = [&](int64_t elements) -> GradOut {
    return {arrays.Filled(draw.Normal(elements)), dtype, true};
  };
  float* x = arrays.Filled(draw.Normal(rows * channels));
  float* dy = arrays.Filled(draw.Normal(rows * channels));
  float* y = arrays.Empty(rows * wide);
  float* dx = arrays.Empty(rows * channels);
  const ConstParam w = param(wide * channels), bias = param(wide);
  ops->LinearForward(x, w, bias, y, rows, channels, wide);
  ops->LinearBackwardInput(y, w, dx, rows, channels, wide, false);
  ops->LinearBackwardWeight(y, x, grad(wide * channels), grad(wide), rows, channels, wide);
  float* mean = arrays.Empty(rows);
  float* rstd = arrays.Empty(rows);
  float* normed = arrays.Empty(rows * channels);
  ops->LayerNormForward(x, bias, bias, normed, mean, rstd, rows, channels);
  ops->LayerNormBackward(dy, x, bias, mean, rstd, dx, true, grad(channels), grad(channels), rows,
                         channels);
  ops->RmsNormForward(x, bias, 1e-5, normed, rstd, rows, channels);
  ops->RmsNormBackward(dy, x, bias, rstd, dx, true, grad(channels), rows, channels);
  const AttentionShape shape{
      .batch = 1, .tokens = rows, .heads = 4, .kv_heads = 4, .head_size = 22};
  float* out = arrays.Empty(rows * 88);
  float* lse = arrays.Empty(4 * rows);
  ops->AttentionForward(x, out, lse, shape);
  ops->AttentionBackward(dy, x, out, lse, dx, shape);
  const AttentionShape shared{
      .batch = 1, .tokens = rows, .heads = 4, .kv_heads = 2, .head_size = 32};
  float* turned = arrays.Filled(draw.Normal(rows * 256));
  float* dturned = arrays.Empty(rows * 256);
  float* shared_out = arrays.Empty(rows * 128);
  float* shared_lse = arrays.Empty(4 * rows);
  float* table = arrays.Empty(rows * 32);
  ops->RotaryTable({.factor = 8, .original_context = 64}, table, rows, 32);
  ops->RotaryForward(turned, table, shared);
  ops->AttentionForward(turned, shared_out, shared_lse, shared);
  ops->AttentionBackward(dy, turned, shared_out, shared_lse, dturned, shared);
  ops->RotaryBackward(dturned, table, shared);
  float* gated = arrays.Empty(rows * wide / 2);
  ops->SwiGluForward(y, gated, rows, wide / 2);
  ops->SwiGluBackward(gated, y, y, rows, wide / 2);
  ops->GeluForward(y, y, rows * wide);
  const Tokens tokens = draw.Below(vocab, rows);
  ops->EmbeddingForward(tokens.data(), param(200 * channels), 50, 200, x, rows, channels);
  ops->PositionForward(x, param(rows * channels), x, 17, rows, 40, channels);
  ops->EmbeddingBackward(tokens.data(), dy, grad(200 * channels), 50, 200, rows, channels);
  ops->PositionBackward(dy, grad(rows * channels), 17, rows, 40, channels, rows);
  ops->BiasBackward(dy, grad(channels), rows, channels);
  ops->ResidualForward(x, bias, dy, x, rows, channels);
  double loss = 0;
  constexpr LossOptions kOptions = {.z_loss = 1e-2, .label_smoothing = 0.1};
  float* logits = arrays.Filled(draw.Normal(rows * vocab));
  ops->CrossEntropyBackward(logits, tokens.data(), 0.25f, kOptions, rows, vocab, loss);
  const VocabularyPart part{
      .first = 20, .count = vocab - 5, .columns = vocab, .vocabulary = vocab + 31};
  float* statistics = arrays.Empty(3 * rows);
  float* joined = arrays.Empty(3 * rows);
  float* part_logits = arrays.Filled(draw.Normal(rows * vocab));
  auto* const own = reinterpret_cast<LogitStatistics*>(statistics);
  auto* const whole = reinterpret_cast<LogitStatistics*>(joined);
  ops->VocabularyStatistics(part_logits, tokens.data(), part, own, rows);
  ops->JoinStatistics(own, 1, tokens.data(), whole, rows, loss);
  ops->VocabularyGradient(part_logits, tokens.data(), part, own, whole, 0.25f, kOptions, rows);
  arrays.Filled({static_cast<float>(loss)});
  return arrays.Contents();
}

TEST(CpuOps, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : kTypes) {
    const Floats one = RunAll(1, 0, dtype);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(SameBits(RunAll(threads, 0, dtype), one)) << threads << NameOf(dtype);
    }
  }
}

TEST(CpuOps, BitsDoNotDependOnAlignment) {
  for (const DType dtype : kTypes) {
    const Floats aligned = RunAll(1, 0, dtype);
    for (const int64_t off : {1, 4, 15}) {
      EXPECT_TRUE(SameBits(RunAll(1, off, dtype), aligned)) << off << NameOf(dtype);
    }
  }
}

// Runs `range` over [0, elements) whole, then over seeded cuts, and compares what `state` gives.
void ExpectCutsAgree(int64_t elements, const std::function<void()>& reset,
                     const std::function<void(int64_t, int64_t)>& range,
                     const std::function<Doubles()>& state) {
  reset();
  range(0, elements);
  const Doubles whole = state();
  Draw draw(17);
  for (int round = 0; round < 20; ++round) {
    reset();
    for (int64_t begin = 0; begin < elements;) {
      const int64_t end = std::min(elements, begin + draw.Between(1, 90));
      range(begin, end);
      begin = end;
    }
    const Doubles cut = state();
    ASSERT_EQ(std::memcmp(cut.data(), whole.data(), whole.size() * sizeof(double)), 0);
  }
}

TEST(CpuOps, AdamWBitsDoNotDependOnHowRangesAreCut) {
  constexpr int64_t kCount = 1003;
  const auto ops = MakeCpuOps(2);
  for (const DType grad_dtype : kTypes) {
    Draw draw(1);
    const Floats weights = draw.Normal(kCount), second = draw.Normal(kCount);
    const Stored grad(draw.Normal(kCount), grad_dtype);
    Floats master, m, v;
    Stored param = Stored::Unset(kCount, DType::kBF16);
    const AdamWParams params{.lr = 1e-3, .step = 3, .grad_scale = 0.7f};
    ExpectCutsAgree(
        kCount,
        [&] {
          master = m = weights;
          v = second;
          for (float& value : v) value *= value;
        },
        [&](int64_t begin, int64_t end) {
          const AdamWState state{&master[begin], &m[begin], &v[begin]};
          ops->AdamW({param.data() + 2 * begin, DType::kBF16, false}, state, state,
                     grad.data() + begin * SizeOf(grad_dtype), grad_dtype, params, end - begin);
        },
        [&] {
          Doubles state = param.values();
          for (const Floats* part : {&master, &m, &v}) {
            state.insert(state.end(), part->begin(), part->end());
          }
          return state;
        });
  }
}

TEST(CpuOps, GeluBitsDoNotDependOnHowRangesAreCut) {
  constexpr int64_t kCount = 517;
  const auto ops = MakeCpuOps(1);
  const Floats x = Draw(2).Normal(kCount, 3);
  Floats y(kCount), dx(kCount);
  ExpectCutsAgree(
      kCount, [] {},
      [&](int64_t begin, int64_t end) {
        ops->GeluForward(&x[begin], &y[begin], end - begin);
        ops->GeluBackward(&x[begin], &x[begin], &dx[begin], end - begin);
      },
      [&] {
        Doubles state = ToDoubles(y);
        state.insert(state.end(), dx.begin(), dx.end());
        return state;
      });
}

TEST(CpuOps, SumAndCastBitsDoNotDependOnHowRangesAreCut) {
  constexpr int64_t kCount = 777;
  const Floats a = Draw(3).Normal(kCount), b = Draw(4).Normal(kCount);
  for (const DType dtype : kTypes) {
    const Stored src(b, dtype);
    Stored dst(a, dtype);
    Stored narrow = Stored::Unset(kCount, DType::kBF16);
    ExpectCutsAgree(
        kCount, [&] { dst = Stored(a, dtype); },
        [&](int64_t begin, int64_t end) {
          const int64_t at = begin * SizeOf(dtype);
          AddRoundedSerial(dst.data() + at, src.data() + at, dtype, end - begin);
          CastSerial(&b[begin], DType::kF32, narrow.data() + 2 * begin, DType::kBF16, end - begin);
        },
        [&] {
          Doubles state = dst.values();
          const Doubles cast = narrow.values();
          state.insert(state.end(), cast.begin(), cast.end());
          return state;
        });
  }
}

TEST(CpuOps, FingerprintNamesBuildAndInstructionSet) {
  const std::string fingerprint = CpuNumericsFingerprint();
  EXPECT_EQ(fingerprint, CpuNumericsFingerprint());
  EXPECT_NE(fingerprint.find("onednn"), std::string::npos) << fingerprint;
}

}  // namespace
}  // namespace sherd
