// How fast a GPU's ops are beside what bounds them, as one JSON object on stdout: bytes or FLOPs a
// second by name, but of a large product what it takes and what of it is a cast of its operand. For
// scripts/gpu_check.py; the first argument "small" makes sizes that show only
// that it works.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/ops.h"
#include "tests/cuda/tested_devices.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr int kRounds = 5;
constexpr double kRoundSeconds = 0.05;

struct Sizes {
  int64_t elements;        // of a copy, and of AdamW
  int64_t rows, channels;  // of a norm
  int64_t product;         // of a square product
  AttentionShape attention;
};
constexpr Sizes kLarge = {1 << 26, 1 << 14, 4096, 8192, {4, 4096, 16, 16, 128}};
constexpr Sizes kSmall = {1 << 10, 8, 64, 32, {1, 64, 1, 1, 128}};

class Rates {
 public:
  explicit Rates(const Sizes& sizes)
      : sizes_(sizes),
        device_(TestedDevices().front().open()),
        meter_(device_->memory()),
        ops_(device_->MakeOps({.meter = &meter_, .bf16 = true})) {}

  void Measure() {
    MeasureMemory();
    MeasureNorms();
    MeasureProducts();
  }
  absl::Status status() { return device_->Synchronize(); }
  // {"copy": 1e12, …}.
  void Print() const {
    for (size_t i = 0; i < rates_.size(); ++i) {
      std::printf("%s\"%s\": %.6g", i == 0 ? "{" : ", ", rates_[i].first.c_str(), rates_[i].second);
    }
    std::printf("}\n");
  }

 private:
  // Values that are no zeros, which cost less power, hence time.
  Buffer Put(int64_t elements, DType dtype) {
    constexpr int64_t kDrawn = 1 << 16;
    const Stored values(Draw(1).Normal(kDrawn), dtype);
    Buffer buffer(meter_, Pool::kActivations, elements * SizeOf(dtype));
    const int64_t piece = kDrawn * SizeOf(dtype);
    for (int64_t begin = 0; begin < buffer.bytes(); begin += piece) {
      device_->CopyIn(buffer.data() + begin, values.data(),
                      std::min(piece, buffer.bytes() - begin));
    }
    return buffer;
  }

  double SecondsOf(int64_t times, const std::function<void()>& run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < times; ++i) run();
    device_->Synchronize().IgnoreError();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  // `work` in bytes or FLOPs of one run.
  void Add(const char* name, double work, const std::function<void()>& run) {
    rates_.emplace_back(name, work / MedianSeconds(run));
  }

  // Of one run: the median of several rounds counts.
  double MedianSeconds(const std::function<void()>& run) {
    SecondsOf(1, run);
    const double once = SecondsOf(1, run);
    const auto times = static_cast<int64_t>(std::clamp(kRoundSeconds / once, 1.0, 1000.0));
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) seconds.push_back(SecondsOf(times, run));
    std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
    return seconds[kRounds / 2] / static_cast<double>(times);
  }

  void MeasureMemory() {
    const int64_t elements = sizes_.elements;
    const auto count = static_cast<double>(elements);
    const Buffer from = Put(elements, DType::kF32), to = Put(elements, DType::kF32);
    Add("copy", 8 * count, [&] { device_->CopyWithin(to.data(), from.data(), to.bytes()); });
    const Buffer second = Put(elements, DType::kF32);
    const Buffer moment(meter_, Pool::kOptimizer, elements * SizeOf(DType::kF32));
    const Buffer param = Put(elements, DType::kBF16), grad = Put(elements, DType::kBF16);
    const AdamWState state{to.as<float>(), second.as<float>(), moment.as<float>()};
    const AdamWParams params{.lr = 1e-4, .step = 10};
    // Reads the gradient, master and moments, writes these and the parameter.
    Add("adamw", 28 * count, [&] {
      ops_->AdamW({param.data(), DType::kBF16, false}, state, state, grad.data(), DType::kBF16,
                  params, elements);
    });
  }

  void MeasureNorms() {
    const int64_t rows = sizes_.rows, channels = sizes_.channels;
    const auto count = static_cast<double>(rows * channels);
    const Buffer x = Put(rows * channels, DType::kF32), y = Put(rows * channels, DType::kF32);
    const Buffer dx = Put(rows * channels, DType::kF32);
    const Buffer w = Put(channels, DType::kBF16), b = Put(channels, DType::kBF16);
    const Buffer dw = Put(channels, DType::kBF16), db = Put(channels, DType::kBF16);
    const Buffer mean = Put(rows, DType::kF32), rstd = Put(rows, DType::kF32);
    const ConstParam weight{w.data(), DType::kBF16}, bias{b.data(), DType::kBF16};
    const GradOut dweight{dw.data(), DType::kBF16, false}, dbias{db.data(), DType::kBF16, false};
    Add("layer_norm_forward", 8 * count, [&] {
      ops_->LayerNormForward(x.as<float>(), weight, bias, y.as<float>(), mean.as<float>(),
                             rstd.as<float>(), rows, channels);
    });
    Add("layer_norm_backward", 12 * count, [&] {
      ops_->LayerNormBackward(y.as<float>(), x.as<float>(), weight, mean.as<float>(),
                              rstd.as<float>(), dx.as<float>(), false, dweight, dbias, rows,
                              channels);
    });
    Add("rms_norm_forward", 8 * count, [&] {
      ops_->RmsNormForward(x.as<float>(), weight, 1e-5, y.as<float>(), rstd.as<float>(), rows,
                           channels);
    });
    Add("rms_norm_backward", 12 * count, [&] {
      ops_->RmsNormBackward(y.as<float>(), x.as<float>(), weight, rstd.as<float>(), dx.as<float>(),
                            false, dweight, rows, channels);
    });
  }

  void MeasureProducts() {
    const int64_t n = sizes_.product;
    const Buffer x = Put(n * n, DType::kF32), w = Put(n * n, DType::kBF16);
    const Buffer y = Put(n * n, DType::kF32);
    rates_.emplace_back("product_flops", 2 * std::pow(static_cast<double>(n), 3));
    rates_.emplace_back("product_seconds", MedianSeconds([&] {
                          ops_->LinearForward(x.as<float>(), {w.data(), DType::kBF16},
                                              {nullptr, DType::kBF16}, y.as<float>(), n, n, n);
                        }));
    // The operation rounds its fp32 operand first, which is none of the product.
    const Buffer rounded(meter_, Pool::kActivations, n * n * SizeOf(DType::kBF16));
    rates_.emplace_back("cast_seconds", MedianSeconds([&] {
                          ops_->Cast(x.data(), DType::kF32, rounded.data(), DType::kBF16, n * n);
                        }));
    const AttentionShape& shape = sizes_.attention;
    const int64_t rows = shape.batch * shape.tokens, heads = shape.heads;
    const Buffer qkv = Put(rows * shape.qkv_channels(), DType::kF32);
    const Buffer out = Put(rows * heads * shape.head_size, DType::kF32);
    const Buffer lse = Put(rows * heads, DType::kF32);
    // Two products of tokens by tokens a head, of which the causal half counts.
    const double flops = 2.0 * static_cast<double>(rows * heads * shape.tokens * shape.head_size);
    Add("attention_forward", flops,
        [&] { ops_->AttentionForward(qkv.as<float>(), out.as<float>(), lse.as<float>(), shape); });
  }

  const Sizes sizes_;
  const std::unique_ptr<Accelerator> device_;
  MemoryMeter meter_;
  const std::unique_ptr<Ops> ops_;
  std::vector<std::pair<std::string, double>> rates_;
};

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) {
  const bool small = argc > 1 && absl::string_view(argv[1]) == "small";
  sherd::Rates rates(small ? sherd::kSmall : sherd::kLarge);
  rates.Measure();
  if (const absl::Status status = rates.status(); !status.ok()) {
    std::fprintf(stderr, "gpu_rates: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  rates.Print();
  return 0;
}
