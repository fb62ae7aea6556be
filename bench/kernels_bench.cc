// Speed of the CPU kernels at GPT's shapes. Arguments end in the number of threads.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"

namespace sherd {
namespace {

std::vector<float> Normal(int64_t elements) {
  std::minstd_rand generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values) value = 0.1f * normal(generator);
  return values;
}

std::vector<BF16> Rounded(const std::vector<float>& values) {
  std::vector<BF16> rounded;
  for (const float value : values) rounded.push_back(ToBF16(value));
  return rounded;
}

void CountFlops(benchmark::State& state, double flops_per_iteration) {
  state.counters["GF/s"] =
      benchmark::Counter(flops_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void CountElements(benchmark::State& state, int64_t elements) {
  state.counters["ns/element"] = benchmark::Counter(
      static_cast<double>(elements) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

enum class Pass { kForward, kInput, kWeight };

// Arguments: rows, in, out, half precision, threads.
void Linear(benchmark::State& state, Pass pass) {
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const DType dtype = state.range(3) != 0 ? DType::kBF16 : DType::kF32;
  const auto ops = MakeCpuOps(static_cast<int>(state.range(4)));
  std::vector<float> x = Normal(rows * in), y = Normal(rows * out);
  std::vector<float> w = Normal(in * out), bias = Normal(out);
  std::vector<BF16> w_half = Rounded(w), bias_half = Rounded(bias);
  void* const weights =
      dtype == DType::kF32 ? static_cast<void*>(w.data()) : static_cast<void*>(w_half.data());
  void* const biases =
      dtype == DType::kF32 ? static_cast<void*>(bias.data()) : static_cast<void*>(bias_half.data());
  for (auto _ : state) {
    switch (pass) {
      case Pass::kForward:
        ops->LinearForward(x.data(), {weights, dtype}, {biases, dtype}, y.data(), rows, in, out);
        break;
      case Pass::kInput:
        ops->LinearBackwardInput(y.data(), {weights, dtype}, x.data(), rows, in, out, false);
        break;
      case Pass::kWeight:
        ops->LinearBackwardWeight(y.data(), x.data(), {weights, dtype, false},
                                  {biases, dtype, false}, rows, in, out);
        break;
    }
  }
  CountFlops(state, 2.0 * static_cast<double>(rows * in * out));
}

void LinearShapes(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, 2}) {
    for (const int half : {0, 1}) {
      bench->Args({1024, 384, 1152, half, threads});
      bench->Args({2048, 384, 1536, half, threads});
      bench->Args({512, 768, 3072, half, threads});
      bench->Args({512, 3072, 768, half, threads});
    }
  }
  bench->ArgNames({"rows", "in", "out", "bf16", "threads"})->UseRealTime();
}
BENCHMARK_CAPTURE(Linear, Forward, Pass::kForward)->Apply(LinearShapes);
BENCHMARK_CAPTURE(Linear, BackwardInput, Pass::kInput)->Apply(LinearShapes);
BENCHMARK_CAPTURE(Linear, BackwardWeight, Pass::kWeight)->Apply(LinearShapes);

// Arguments: batch, tokens, heads, threads; heads of 64. Counts the causal half only.
void Attention(benchmark::State& state, bool backward) {
  const AttentionShape shape{state.range(0), state.range(1), state.range(2), state.range(2), 64};
  const auto ops = MakeCpuOps(static_cast<int>(state.range(3)));
  const int64_t elements = shape.batch * shape.tokens * shape.heads * shape.head_size;
  std::vector<float> qkv = Normal(3 * elements), out = Normal(elements), dout = Normal(elements);
  std::vector<float> dqkv(qkv.size()), lse(static_cast<size_t>(elements / shape.head_size));
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  for (auto _ : state) {
    if (backward) {
      ops->AttentionBackward(dout.data(), qkv.data(), out.data(), lse.data(), dqkv.data(), shape);
    } else {
      ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
    }
  }
  CountFlops(state, (backward ? 5.0 : 2.0) * static_cast<double>(elements * shape.tokens));
}
BENCHMARK_CAPTURE(Attention, Forward, false)
    ->ArgsProduct({{2, 8}, {256, 1024}, {6}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(Attention, Backward, true)
    ->ArgsProduct({{2, 8}, {256, 1024}, {6}, {1, 2}})
    ->UseRealTime();

// Arguments: elements, half precision, threads.
void AdamW(benchmark::State& state) {
  const int64_t elements = state.range(0);
  const bool half = state.range(1) != 0;
  const auto ops = MakeCpuOps(static_cast<int>(state.range(2)));
  std::vector<float> master = Normal(elements), m(master), v(master.size(), 0.1f), grad(master);
  std::vector<BF16> grad_half = Rounded(grad), param = grad_half;
  const AdamWParams params{.lr = 1e-4, .step = 10};
  const AdamWState kept{master.data(), m.data(), v.data()};
  for (auto _ : state) {
    if (half) {
      ops->AdamW({param.data(), DType::kBF16, false}, kept, kept, grad_half.data(), DType::kBF16,
                 params, elements);
    } else {
      ops->AdamW({master.data(), DType::kF32, false}, kept, kept, grad.data(), DType::kF32, params,
                 elements);
    }
  }
  CountElements(state, elements);
}
BENCHMARK(AdamW)->ArgsProduct({{1 << 24}, {0, 1}, {1, 2}})->UseRealTime();

void AddSquares(benchmark::State& state) {
  const int64_t elements = state.range(0);
  const bool half = state.range(1) != 0;
  const auto ops = MakeCpuOps(static_cast<int>(state.range(2)));
  const std::vector<float> x = Normal(elements);
  const std::vector<BF16> x_half = Rounded(x);
  ExactSum sum;
  for (auto _ : state) {
    ops->AddSquares(half ? static_cast<const void*>(x_half.data()) : x.data(),
                    half ? DType::kBF16 : DType::kF32, elements, sum);
  }
  CountElements(state, elements);
}
BENCHMARK(AddSquares)->ArgsProduct({{1 << 22}, {0, 1}, {1, 2}})->UseRealTime();

void AddRounded(benchmark::State& state) {
  const int64_t elements = state.range(0);
  const DType dtype = state.range(1) != 0 ? DType::kBF16 : DType::kF32;
  const auto ops = MakeCpuOps(static_cast<int>(state.range(2)));
  std::vector<float> dst = Normal(elements);
  const std::vector<float> src(dst.size());
  for (auto _ : state) ops->AddRounded(dst.data(), src.data(), dtype, elements);
  CountElements(state, elements);
}
BENCHMARK(AddRounded)->ArgsProduct({{1 << 22}, {0, 1}, {1, 2}})->UseRealTime();

// Arguments: rows, channels, threads.
void LayerNorm(benchmark::State& state, bool backward) {
  const int64_t rows = state.range(0), channels = state.range(1);
  const auto ops = MakeCpuOps(static_cast<int>(state.range(2)));
  std::vector<float> x = Normal(rows * channels), y(x), w = Normal(channels), b(w), dw(w), db(w);
  std::vector<float> mean(static_cast<size_t>(rows)), rstd(mean);
  const ConstParam weight{w.data(), DType::kF32};
  ops->LayerNormForward(x.data(), weight, {b.data(), DType::kF32}, y.data(), mean.data(),
                        rstd.data(), rows, channels);
  std::vector<float> dx(x.size());
  for (auto _ : state) {
    if (backward) {
      ops->LayerNormBackward(y.data(), x.data(), weight, mean.data(), rstd.data(), dx.data(), false,
                             {dw.data(), DType::kF32, false}, {db.data(), DType::kF32, false}, rows,
                             channels);
    } else {
      ops->LayerNormForward(x.data(), weight, {b.data(), DType::kF32}, y.data(), mean.data(),
                            rstd.data(), rows, channels);
    }
  }
  CountElements(state, rows * channels);
}
BENCHMARK_CAPTURE(LayerNorm, Forward, false)
    ->ArgsProduct({{1024}, {384, 768}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(LayerNorm, Backward, true)
    ->ArgsProduct({{1024}, {384, 768}, {1, 2}})
    ->UseRealTime();

// Arguments: elements, threads.
void Gelu(benchmark::State& state, bool backward) {
  const int64_t elements = state.range(0);
  const auto ops = MakeCpuOps(static_cast<int>(state.range(1)));
  std::vector<float> x = Normal(elements), y(x);
  for (auto _ : state) {
    if (backward) {
      ops->GeluBackward(x.data(), x.data(), y.data(), elements);
    } else {
      ops->GeluForward(x.data(), y.data(), elements);
    }
  }
  CountElements(state, elements);
}
BENCHMARK_CAPTURE(Gelu, Forward, false)->ArgsProduct({{1024 * 1536}, {1, 2}})->UseRealTime();
BENCHMARK_CAPTURE(Gelu, Backward, true)->ArgsProduct({{1024 * 1536}, {1, 2}})->UseRealTime();

// Arguments: rows, vocab, threads. Gradients of gradients: the logits change, the work does not.
void CrossEntropy(benchmark::State& state) {
  const int64_t rows = state.range(0), vocab = state.range(1);
  const auto ops = MakeCpuOps(static_cast<int>(state.range(2)));
  std::vector<float> logits = Normal(rows * vocab);
  const std::vector<int32_t> targets(static_cast<size_t>(rows), 7);
  for (auto _ : state) {
    double loss = 0;
    ops->CrossEntropyBackward(logits.data(), targets.data(), 0.01f, {}, rows, vocab, loss);
    benchmark::DoNotOptimize(loss);
  }
  CountElements(state, rows * vocab);
}
BENCHMARK(CrossEntropy)
    ->Args({2048, 256, 1})
    ->Args({2048, 256, 2})
    ->Args({256, 50257, 1})
    ->Args({256, 50257, 2})
    ->UseRealTime();

}  // namespace
}  // namespace sherd
