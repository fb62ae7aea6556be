// Products of matrices, which the driver's library computes.
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

}  // namespace

// Brings operands into the type that products take. Room for all of them is asked for at once.
class CudaOps::Operands {
 public:
  Operands(CudaOps& ops, int64_t bytes)
      : ops_(ops),
        next_(bytes == 0 ? nullptr : static_cast<std::byte*>(ops.operand_scratch_.Reserve(bytes))) {
  }

  // `values` as `dtype`: themselves where they are of that type.
  const void* As(DType dtype, ConstParam values, int64_t elements) {
    if (values.data == nullptr || values.dtype == dtype) return values.data;
    std::byte* const room = Take(dtype, elements);
    if (room != nullptr) ops_.Cast(values.data, values.dtype, room, dtype, elements);
    return room;
  }
  // Null: the device has failed.
  std::byte* Take(DType dtype, int64_t elements) {
    return next_ == nullptr ? nullptr : std::exchange(next_, next_ + RoomOf(elements, dtype));
  }
  // Bytes that it takes, as `dtype`, of what is `from`.
  static int64_t Room(DType dtype, DType from, int64_t elements) {
    return from == dtype ? 0 : RoomOf(elements, dtype);
  }

 private:
  CudaOps& ops_;
  std::byte* next_;
};

void CudaOps::Multiply(Product product) {
  if (device_.failed()) return;
  product.workspace = workspace_.data();
  product.workspace_bytes = workspace_.bytes();
  std::string why;
  const CudaDriver::Error error =
      device_.driver().Multiply(product, device_.compute_stream(), &why);
  if (error == CudaDriver::kSuccess) return;
  device_.Remember(absl::InternalError(
      absl::StrCat("a product of matrices (", product.m, " × ", product.k, ") · (", product.k,
                   " × ", product.n, ") of ", NameOf(product.operands),
                   " failed: ", device_.driver().Text(error), why.empty() ? "" : "; ", why)));
}

void CudaOps::LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                            int64_t in, int64_t out) {
  if (rows == 0) return;
  const int64_t biases = bias.data == nullptr ? 0 : out;
  Operands operands(*this, Operands::Room(operands_, DType::kF32, rows * in) +
                               Operands::Room(operands_, w.dtype, out * in) +
                               Operands::Room(DType::kF32, bias.dtype, biases));
  Product product{.m = rows, .n = out, .k = in, .operands = operands_};
  product.a = operands.As(operands_, {x, DType::kF32}, rows * in);
  product.b = operands.As(operands_, w, out * in);
  product.b_transposed = true;
  product.d = y;
  product.result = DType::kF32;
  product.bias = static_cast<const float*>(operands.As(DType::kF32, bias, out));
  Multiply(product);
}

void CudaOps::LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows,
                                  int64_t in, int64_t out, bool accumulate) {
  if (rows == 0) return;
  Operands operands(*this, Operands::Room(operands_, DType::kF32, rows * out) +
                               Operands::Room(operands_, w.dtype, out * in));
  Product product{.m = rows, .n = in, .k = out, .operands = operands_};
  product.a = operands.As(operands_, {dy, DType::kF32}, rows * out);
  product.b = operands.As(operands_, w, out * in);
  product.d = dx;
  product.result = DType::kF32;
  product.accumulate = accumulate;
  Multiply(product);
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
  Operands operands(*this, Operands::Room(operands_, DType::kF32, rows * out) +
                               Operands::Room(operands_, DType::kF32, rows * in) +
                               Operands::Room(result, dw.dtype, out * in));
  Product product{.m = out, .n = in, .k = rows, .operands = operands_};
  product.a = operands.As(operands_, {dy, DType::kF32}, rows * out);
  product.a_transposed = true;
  product.b = operands.As(operands_, {x, DType::kF32}, rows * in);
  product.d = dw.data;
  product.result = result;
  product.accumulate = dw.accumulate;
  if (result == dw.dtype) return Multiply(product);
  product.d = operands.Take(result, out * in);
  if (dw.accumulate && product.d != nullptr) Cast(dw.data, dw.dtype, product.d, result, out * in);
  Multiply(product);
  Cast(product.d, result, dw.data, dw.dtype, out * in);
}

}  // namespace sherd
