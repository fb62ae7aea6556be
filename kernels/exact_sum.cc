#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ops.h"

namespace sherd {

void ExactSum::Add(const ExactSum& other) {
  unsigned __int128 carry = 0;
  for (size_t i = 0; i < limbs.size(); ++i) {
    carry += limbs[i];
    carry += other.limbs[i];
    limbs[i] = static_cast<uint64_t>(carry);
    carry >>= 64;
  }
  nonfinite += other.nonfinite;
}

double ExactSum::Value() const {
  if (nonfinite != 0) return std::numeric_limits<double>::quiet_NaN();
  int top = static_cast<int>(limbs.size()) - 1;
  while (top >= 0 && limbs[top] == 0) --top;
  if (top < 0) return 0;
  const int shift = std::countl_zero(limbs[top]);
  uint64_t head = limbs[top] << shift;
  uint64_t below = 0;
  if (top > 0) {
    if (shift > 0) head |= limbs[top - 1] >> (64 - shift);
    below = limbs[top - 1] << shift;
  }
  for (int i = 0; i + 1 < top; ++i) below |= limbs[i];
  // The head has eleven bits more than a double: a sticky last bit makes its conversion round the
  // whole number.
  if (below != 0) head |= 1;
  return std::ldexp(static_cast<double>(head), 64 * top - shift + kLowestExponent);
}

}  // namespace sherd
