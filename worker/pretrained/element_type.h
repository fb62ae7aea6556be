#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace sherd {

// The types of published weights, as safetensors, job files and torch spell them.
enum class ElementType : uint8_t { kF32, kBF16, kF16 };

// "F32"; nothing for a type whose values are no weights.
std::optional<ElementType> ElementTypeFromSafetensors(absl::string_view dtype);
absl::string_view SafetensorsNameOf(ElementType type);
// "fp32", "bf16", "fp16".
std::optional<ElementType> ElementTypeFromName(absl::string_view name);
absl::string_view NameOf(ElementType type);
// "float32", …
absl::string_view TorchNameOf(ElementType type);
constexpr int64_t BytesOf(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

// IEEE binary16, exactly; a NaN stays one.
float HalfToFloat(uint16_t half);
// To nearest, ties to even; what is too large becomes infinite.
uint16_t FloatToHalf(float value);

// Of `count` little-endian values at `from`, which need not be aligned.
void DecodeElements(ElementType type, const std::byte* from, int64_t count, float* to);
// Rounds to nearest, ties to even. The number of finite values that became infinite.
int64_t EncodeElements(ElementType type, const float* from, int64_t count, std::byte* to);

}  // namespace sherd
