#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/data/mapped_file.h"

namespace sherd {

// How a file stores the ids of tokens: one after another, little-endian.
enum class IdType { kU8, kI8, kU16, kI16, kU32, kI32, kI64, kF32, kF64 };

// As numpy calls it.
absl::string_view NameOf(IdType type);
// Bytes of one id.
int64_t WidthOf(IdType type);

// Reads `count` ids from byte `offset` on, which must be in the file as it was opened. kDataLoss as
// MappedFile::Read; kInvalidArgument, naming file, byte and value, for one that no id can be:
// negative, 2^31 or more, or no whole number.
absl::Status ReadIds(const MappedFile& file, IdType type, int64_t offset, int64_t count,
                     int32_t* out);

}  // namespace sherd
