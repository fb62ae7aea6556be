#pragma once

#include <bit>
#include <cstdint>

namespace sherd {

enum class DType : uint8_t { kF32, kBF16 };

constexpr int64_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }
constexpr const char* NameOf(DType type) { return type == DType::kF32 ? "fp32" : "bf16"; }

// The upper half of an IEEE binary32.
struct BF16 {
  uint16_t bits;
};

inline float ToFloat(BF16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
inline BF16 ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return BF16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return BF16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace sherd
