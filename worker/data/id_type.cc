#include "worker/data/id_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

static_assert(std::endian::native == std::endian::little);

struct TypeRow {
  IdType type;
  absl::string_view name;
  int64_t width;
};

constexpr TypeRow kTypes[] = {
    {IdType::kU8, "uint8", 1},  {IdType::kI8, "int8", 1},     {IdType::kU16, "uint16", 2},
    {IdType::kI16, "int16", 2}, {IdType::kU32, "uint32", 4},  {IdType::kI32, "int32", 4},
    {IdType::kI64, "int64", 8}, {IdType::kF32, "float32", 4}, {IdType::kF64, "float64", 8}};

const TypeRow& RowOf(IdType type) { return kTypes[static_cast<size_t>(type)]; }

template <typename Stored>
bool IsId(Stored value) {
  if constexpr (std::is_floating_point_v<Stored>) {
    // False for what is not a number.
    if (!(value >= 0 && value < static_cast<Stored>(2147483648.0))) return false;
    return static_cast<Stored>(static_cast<int32_t>(value)) == value;
  } else if constexpr (sizeof(Stored) < sizeof(int32_t)) {
    return value >= 0;
  } else {
    return value >= 0 &&
           static_cast<uint64_t>(value) <= uint64_t{std::numeric_limits<int32_t>::max()};
  }
}

// Ids out of bytes at file offset `offset`.
template <typename Stored>
absl::Status Convert(const MappedFile& file, int64_t offset, const char* bytes, int64_t count,
                     int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof value), sizeof value);
    if (!IsId(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.name(), ": byte ", offset + i * static_cast<int64_t>(sizeof value), ": ", +value,
          " is no token; tokens are whole numbers from 0 to 2147483647"));
    }
    out[i] = static_cast<int32_t>(value);
  }
  return absl::OkStatus();
}

absl::Status ConvertAs(IdType type, const MappedFile& file, int64_t offset, const char* bytes,
                       int64_t count, int32_t* out) {
  switch (type) {
    case IdType::kU8:
      return Convert<uint8_t>(file, offset, bytes, count, out);
    case IdType::kI8:
      return Convert<int8_t>(file, offset, bytes, count, out);
    case IdType::kU16:
      return Convert<uint16_t>(file, offset, bytes, count, out);
    case IdType::kI16:
      return Convert<int16_t>(file, offset, bytes, count, out);
    case IdType::kU32:
      return Convert<uint32_t>(file, offset, bytes, count, out);
    case IdType::kI32:
      return Convert<int32_t>(file, offset, bytes, count, out);
    case IdType::kI64:
      return Convert<int64_t>(file, offset, bytes, count, out);
    case IdType::kF32:
      return Convert<float>(file, offset, bytes, count, out);
    case IdType::kF64:
      return Convert<double>(file, offset, bytes, count, out);
  }
  return absl::InternalError("an id type of no known width");
}

}  // namespace

absl::string_view NameOf(IdType type) { return RowOf(type).name; }
int64_t WidthOf(IdType type) { return RowOf(type).width; }

absl::Status ReadIds(const MappedFile& file, IdType type, int64_t offset, int64_t count,
                     int32_t* out) {
  std::array<char, 16384> bytes;
  const int64_t width = WidthOf(type);
  const int64_t most = static_cast<int64_t>(bytes.size()) / width;
  while (count > 0) {
    const int64_t part = std::min(count, most);
    SHERD_RETURN_IF_ERROR(file.Read(offset, part * width, bytes.data()));
    SHERD_RETURN_IF_ERROR(ConvertAs(type, file, offset, bytes.data(), part, out));
    offset += part * width;
    out += part;
    count -= part;
  }
  return absl::OkStatus();
}

}  // namespace sherd
