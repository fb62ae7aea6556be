#include "worker/pretrained/element_type.h"

#include <cmath>
#include <cstring>

#include "kernels/dtype.h"

namespace sherd {
namespace {

struct TypeRow {
  ElementType type;
  absl::string_view safetensors;
  absl::string_view name;
  absl::string_view torch;
};

constexpr TypeRow kTypes[] = {{ElementType::kF32, "F32", "fp32", "float32"},
                              {ElementType::kBF16, "BF16", "bf16", "bfloat16"},
                              {ElementType::kF16, "F16", "fp16", "float16"}};

const TypeRow& RowOf(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

static_assert(std::endian::native == std::endian::little, "safetensors data are little endian");

float DecodeOne(ElementType type, uint16_t bits) {
  return type == ElementType::kBF16 ? ToFloat(BF16{bits}) : HalfToFloat(bits);
}

uint16_t EncodeOne(ElementType type, float value) {
  return type == ElementType::kBF16 ? ToBF16(value).bits : FloatToHalf(value);
}

}  // namespace

std::optional<ElementType> ElementTypeFromSafetensors(absl::string_view dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.safetensors == dtype) return row.type;
  }
  return std::nullopt;
}

std::optional<ElementType> ElementTypeFromName(absl::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

absl::string_view SafetensorsNameOf(ElementType type) { return RowOf(type).safetensors; }
absl::string_view NameOf(ElementType type) { return RowOf(type).name; }
absl::string_view TorchNameOf(ElementType type) { return RowOf(type).torch; }

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? magnitude : -magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;
  } else if (magnitude >= 0x477FF000u) {
    // From the middle between the largest and what would be the next.
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {
    // Below the smallest normal value the sum's last bit is worth 2^-24, and the adder rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(sum) - 0x3F000000u;
  } else {
    half = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

void DecodeElements(ElementType type, const std::byte* from, int64_t count, float* to) {
  if (type == ElementType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    to[i] = DecodeOne(type, bits);
  }
}

int64_t EncodeElements(ElementType type, const float* from, int64_t count, std::byte* to) {
  if (type == ElementType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return 0;
  }
  int64_t overflows = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = EncodeOne(type, from[i]);
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
    overflows += std::isfinite(from[i]) && !std::isfinite(DecodeOne(type, bits)) ? 1 : 0;
  }
  return overflows;
}

}  // namespace sherd
