#pragma once

#include <cstdint>
#include <tuple>

#include "kernels/dtype.h"

namespace sherd {

// What libraries are told of the pointers of any product, however much better aligned they happen
// to be: it differs between layouts of the same values, and algorithms are chosen by it.
inline constexpr int64_t kProductAlignment = 16;

// What becomes of a product, its bias included, before it is d. kGelu: it is written to `pre`, and
// d is its GELU, the tanh approximation. kGeluGradient: d is it · gelu'(pre). How exact a GELU is,
// is the library's matter.
enum class Epilogue : uint8_t { kNone, kGelu, kGeluGradient };

// Rows of a product with an epilogue are whole multiples of so many elements.
inline constexpr int64_t kEpilogueColumns = 8;

// d (m, n) = op(a) (m, k) · op(b) (k, n) + bias (n), added to d when `accumulate`: in fp32, before
// the one rounding. Row-major and dense: a transposed operand is stored (k, m) or (n, k). Both
// operands are of one type; a bias and operands in fp32 want an fp32 result. Sizes are at least 1.
// Operands, result, bias and `pre` begin at multiples of kProductAlignment bytes. An epilogue is of
// fp32 results that are not added to d; that of a gradient has no bias.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  DType operands = DType::kF32;
  const void* a = nullptr;
  const void* b = nullptr;
  bool a_transposed = false, b_transposed = false;
  void* d = nullptr;
  DType result = DType::kF32;
  bool accumulate = false;
  const float* bias = nullptr;  // null: none
  Epilogue epilogue = Epilogue::kNone;
  float* pre = nullptr;  // (m, n), of an epilogue
  // 256-byte aligned; what the library works in.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// All that the algorithm of a product is chosen by: sizes, and types and forms as bits.
using ProductKey = std::tuple<int64_t, int64_t, int64_t, int>;
inline ProductKey KeyOf(const Product& p) {
  const int flags = (p.a_transposed ? 1 : 0) | (p.b_transposed ? 2 : 0) | (p.accumulate ? 4 : 0) |
                    (p.bias != nullptr ? 8 : 0) | (p.operands == DType::kBF16 ? 16 : 0) |
                    (p.result == DType::kBF16 ? 32 : 0) | static_cast<int>(p.epilogue) << 6;
  return {p.m, p.n, p.k, flags};
}

}  // namespace sherd
