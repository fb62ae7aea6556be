// Products of matrices, which the driver's library computes.
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/checked.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_ops_launch.h"

namespace sherd {
namespace {

constexpr int64_t kAlignment = 256;

int64_t RoomOf(int64_t elements, DType dtype) {
  return (elements * SizeOf(dtype) + kAlignment - 1) / kAlignment * kAlignment;
}

// Whether a product takes, or leaves, what is to be `dtype` where it lies.
bool Fits(DType dtype, const void* data, DType of) {
  return of == dtype && reinterpret_cast<uintptr_t>(data) % kProductAlignment == 0;
}

// "a product of matrices (2 × 3) · (3 × 4)ᵀ of bf16, to fp32, with a bias".
std::string TextOf(const Product& p) {
  const auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? absl::StrCat("(", columns, " × ", rows, ")ᵀ")
                      : absl::StrCat("(", rows, " × ", columns, ")");
  };
  return absl::StrCat("a product of matrices ", matrix(p.m, p.k, p.a_transposed), " · ",
                      matrix(p.k, p.n, p.b_transposed), " of ", NameOf(p.operands), ", ",
                      p.accumulate ? "added to " : "to ", NameOf(p.result),
                      p.bias == nullptr ? "" : ", with a bias",
                      p.epilogue == Epilogue::kNone   ? ""
                      : p.epilogue == Epilogue::kGelu ? ", with its GELU"
                                                      : ", back through a GELU");
}

}  // namespace

// Brings operands into the type and to the alignment that products take. Room for all of them, and
// for the result where it needs some, is asked for at once.
class CudaOps::Operands {
 public:
  Operands(CudaOps& ops, int64_t bytes)
      : ops_(ops),
        next_(bytes == 0 ? nullptr : static_cast<std::byte*>(ops.operand_scratch_.Reserve(bytes))) {
  }

  // `values` as `dtype`: themselves where they fit.
  const void* As(DType dtype, ConstParam values, int64_t elements) {
    if (values.data == nullptr || Fits(dtype, values.data, values.dtype)) return values.data;
    std::byte* const room = Take(dtype, elements);
    if (room != nullptr) ops_.Bring(values, {room, dtype, false}, elements);
    return room;
  }
  // Null: the device has failed.
  std::byte* Take(DType dtype, int64_t elements) {
    return next_ == nullptr ? nullptr : std::exchange(next_, next_ + RoomOf(elements, dtype));
  }
  // Bytes that values, or a result, take as `dtype`.
  static int64_t Room(DType dtype, ConstParam values, int64_t elements) {
    const bool none = values.data == nullptr || Fits(dtype, values.data, values.dtype);
    return none ? 0 : RoomOf(elements, dtype);
  }

 private:
  CudaOps& ops_;
  std::byte* next_;
};

void CudaOps::Bring(ConstParam from, GradOut to, int64_t elements) {
  if (from.dtype == to.dtype) {
    device_.CopyWithin(to.data, from.data, elements * SizeOf(to.dtype));
  } else {
    Cast(from.data, from.dtype, to.data, to.dtype, elements);
  }
}

void CudaOps::Multiply(Product product) {
  if (device_.failed()) return;
  product.workspace = workspace_.data();
  product.workspace_bytes = workspace_.bytes();
  std::string why;
  const CudaDriver::Error error =
      device_.driver().Multiply(product, device_.compute_stream(), &why);
  if (error == CudaDriver::kSuccess) return;
  if (error != CudaDriver::kNoProduct) why = device_.driver().Text(error);
  device_.Remember(absl::InternalError(absl::StrCat(TextOf(product), " failed: ", why)));
}

void CudaOps::MultiplyTo(GradOut to, Product product, Operands& operands) {
  product.accumulate = to.accumulate;
  if (Fits(product.result, to.data, to.dtype)) {
    product.d = to.data;
    return Multiply(product);
  }
  const int64_t elements = product.m * product.n;
  std::byte* const room = operands.Take(product.result, elements);
  if (room == nullptr) return;
  if (to.accumulate) Bring({to.data, to.dtype}, {room, product.result, false}, elements);
  product.d = room;
  Multiply(product);
  Bring({room, product.result}, to, elements);
}

bool CudaOps::HasEpilogue(Product product) {
  // An algorithm is chosen by what it may work in.
  product.workspace = workspace_.data();
  product.workspace_bytes = workspace_.bytes();
  // A GELU of fp32 is that of the kernels, which is as exact as fp32 is.
  return operands_ == DType::kBF16 && product.n % kEpilogueColumns == 0 && !device_.failed() &&
         device_.driver().Computes(product);
}

void CudaOps::LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                            int64_t in, int64_t out) {
  LinearGeluForward(x, w, bias, /*pre=*/nullptr, y, /*y_wanted=*/true, rows, in, out);
}

// Without `pre` there is no GELU.
void CudaOps::LinearGeluForward(const float* x, ConstParam w, ConstParam bias, float* pre, float* y,
                                bool y_wanted, int64_t rows, int64_t in, int64_t out) {
  if (rows == 0) return;
  const ConstParam input{x, DType::kF32};
  const GradOut sum{pre, DType::kF32, false}, result{y, DType::kF32, false};
  Operands operands(*this, Operands::Room(operands_, input, rows * in) +
                               Operands::Room(operands_, w, out * in) +
                               Operands::Room(DType::kF32, bias, out) +
                               Operands::Room(DType::kF32, {pre, DType::kF32}, rows * out) +
                               Operands::Room(DType::kF32, {y, DType::kF32}, rows * out));
  Product product{.m = rows, .n = out, .k = in, .operands = operands_};
  product.a = operands.As(operands_, input, rows * in);
  product.b = operands.As(operands_, w, out * in);
  product.b_transposed = true;
  product.bias = static_cast<const float*>(operands.As(DType::kF32, bias, out));
  if (pre == nullptr) return MultiplyTo(result, product, operands);

  Product with_gelu = product;
  with_gelu.epilogue = Epilogue::kGelu;
  if (!HasEpilogue(with_gelu)) {
    MultiplyTo(sum, product, operands);
    if (y_wanted) GeluForward(pre, y, rows * out);
    return;
  }
  const bool fits = Fits(DType::kF32, pre, DType::kF32);
  with_gelu.pre = fits ? pre : reinterpret_cast<float*>(operands.Take(DType::kF32, rows * out));
  if (with_gelu.pre == nullptr) return;
  MultiplyTo(result, with_gelu, operands);
  if (!fits) Bring({with_gelu.pre, DType::kF32}, sum, rows * out);
}

void CudaOps::LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows,
                                  int64_t in, int64_t out, bool accumulate) {
  BackwardInput(dy, w, /*pre=*/nullptr, dx, rows, in, out, accumulate);
}

void CudaOps::LinearGeluBackwardInput(const float* dy, ConstParam w, const float* pre, float* dpre,
                                      int64_t rows, int64_t in, int64_t out) {
  BackwardInput(dy, w, pre, dpre, rows, in, out, /*accumulate=*/false);
}

void CudaOps::BackwardInput(const float* dy, ConstParam w, const float* pre, float* dx,
                            int64_t rows, int64_t in, int64_t out, bool accumulate) {
  if (rows == 0) return;
  const ConstParam up{dy, DType::kF32}, input{pre, DType::kF32};
  const GradOut to{dx, DType::kF32, accumulate};
  Operands operands(*this, Operands::Room(operands_, up, rows * out) +
                               Operands::Room(operands_, w, out * in) +
                               Operands::Room(DType::kF32, input, rows * in) +
                               Operands::Room(DType::kF32, {dx, DType::kF32}, rows * in));
  Product product{.m = rows, .n = in, .k = out, .operands = operands_};
  product.a = operands.As(operands_, up, rows * out);
  product.b = operands.As(operands_, w, out * in);
  if (pre == nullptr) return MultiplyTo(to, product, operands);

  Product through_gelu = product;
  through_gelu.epilogue = Epilogue::kGeluGradient;
  if (!HasEpilogue(through_gelu)) {
    MultiplyTo(to, product, operands);
    return GeluBackward(dx, pre, dx, rows * in);
  }
  // Read alone, by this epilogue.
  through_gelu.pre =
      static_cast<float*>(const_cast<void*>(operands.As(DType::kF32, input, rows * in)));
  MultiplyTo(to, through_gelu, operands);
}

void CudaOps::LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                                   int64_t rows, int64_t in, int64_t out) {
  if (dbias.data != nullptr) BiasBackward(dy, dbias, rows, out);
  if (rows == 0) {
    if (!dw.accumulate && !device_.failed()) {
      const auto bytes = static_cast<size_t>(out * in * SizeOf(dw.dtype));
      device_.Remember(
          Checked(device_.driver(),
                  device_.driver().MemsetAsync(dw.data, 0, bytes, device_.compute_stream()),
                  "cudaMemsetAsync"));
    }
    return;
  }
  // What is of fp32 has an fp32 result, which is rounded once after.
  const DType result = operands_ == DType::kF32 ? DType::kF32 : dw.dtype;
  const ConstParam up{dy, DType::kF32}, input{x, DType::kF32};
  Operands operands(*this, Operands::Room(operands_, up, rows * out) +
                               Operands::Room(operands_, input, rows * in) +
                               Operands::Room(result, {dw.data, dw.dtype}, out * in));
  Product product{.m = out, .n = in, .k = rows, .operands = operands_, .result = result};
  product.a = operands.As(operands_, up, rows * out);
  product.a_transposed = true;
  product.b = operands.As(operands_, input, rows * in);
  MultiplyTo(dw, product, operands);
}

}  // namespace sherd
