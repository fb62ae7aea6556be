#include <algorithm>
#include <memory>

#include "bench/kernel_cases.h"
#include "bench/sgemm_limit.h"
#include "kernels/cpu/cpu_ops.h"

namespace sherd {
namespace {

// Operands of the largest product, of which every other uses the beginning.
struct Operands {
  explicit Operands(const std::vector<LinearShape>& shapes) {
    int64_t widest = 0, weights = 0;
    for (const LinearShape& shape : shapes) {
      widest = std::max(widest, shape.rows * std::max(shape.in, shape.out));
      weights = std::max(weights, shape.in * shape.out);
    }
    x = NormalValues(widest);
    y = x;
    result = x;
    w = NormalValues(weights);
    dw = w;
    for (const float value : w) w_half.push_back(ToBF16(value));
    dw_half = w_half;
  }
  std::vector<float> x, y, w, dw, result;
  std::vector<BF16> w_half, dw_half;
};

Figures Weighted(const std::vector<LinearShape>& shapes,
                 const std::function<void(const LinearShape& shape)>& products) {
  Figures total;
  for (const LinearShape& shape : shapes) {
    AddTimes(Timed([&] { products(shape); }), shape.times, total);
  }
  return total;
}

}  // namespace

std::vector<LinearShape> LinearShapesOf(const KernelOptions& options) {
  const int64_t rows = options.batch * options.tokens;
  const int64_t c = options.hidden;
  const auto layers = static_cast<double>(options.layers);
  return {{rows, c, 3 * c, layers},
          {rows, c, c, layers},
          {rows, c, 4 * c, layers},
          {rows, 4 * c, c, layers},
          {rows, c, options.vocab, 1}};
}

double FlopsOf(const std::vector<LinearShape>& shapes) {
  double flops = 0;
  for (const LinearShape& shape : shapes) {
    flops += 3 * shape.times * 2.0 * static_cast<double>(shape.rows * shape.in * shape.out);
  }
  return flops;
}

KernelCase LinearCase(const KernelOptions& options) {
  const std::vector<LinearShape> shapes = LinearShapesOf(options);
  const auto operands = std::make_shared<Operands>(shapes);
  const std::shared_ptr<Ops> ops = MakeCpuOps(options.threads);
  const bool half = options.half;
  const auto products = [=](const LinearShape& shape) {
    Operands& o = *operands;
    const DType type = half ? DType::kBF16 : DType::kF32;
    const ConstParam w{half ? static_cast<void*>(o.w_half.data()) : o.w.data(), type};
    const GradOut dw{half ? static_cast<void*>(o.dw_half.data()) : o.dw.data(), type, false};
    ops->LinearForward(o.x.data(), w, {nullptr, type}, o.result.data(), shape.rows, shape.in,
                       shape.out);
    ops->LinearBackwardInput(o.y.data(), w, o.result.data(), shape.rows, shape.in, shape.out,
                             false);
    ops->LinearBackwardWeight(o.y.data(), o.x.data(), dw, {nullptr, type, false}, shape.rows,
                              shape.in, shape.out);
  };
  return {{{"flops", FlopsOf(shapes)}}, [=] { return Weighted(shapes, products); }};
}

KernelCase SgemmLimitCase(const KernelOptions& options) {
  const std::vector<LinearShape> shapes = LinearShapesOf(options);
  const auto operands = std::make_shared<Operands>(shapes);
  const int threads = options.threads;
  const auto products = [=](const LinearShape& shape) {
    Operands& o = *operands;
    const auto [rows, in, out, times] = shape;
    // x · wᵀ, y · w, yᵀ · x
    Sgemm(threads, false, true, rows, out, in, o.x.data(), in, o.w.data(), in, o.result.data(),
          out);
    Sgemm(threads, false, false, rows, in, out, o.y.data(), out, o.w.data(), in, o.result.data(),
          in);
    Sgemm(threads, true, false, out, in, rows, o.y.data(), out, o.x.data(), in, o.dw.data(), in);
  };
  return {{{"flops", FlopsOf(shapes)}}, [=] { return Weighted(shapes, products); }};
}

}  // namespace sherd
