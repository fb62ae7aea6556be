#pragma once

#include <cstdint>

#include "sherd/v1/job.pb.h"

namespace sherd {

inline constexpr int64_t kFp32Bytes = 4;

// Bytes of an element that is stored and sent as `type`.
inline int64_t ElementBytes(v1::DataType type) {
  return type == v1::DATA_TYPE_BF16 ? 2 : kFp32Bytes;
}

// Optimizer state of one parameter: m, v and a master copy; fp32 parameters are their own.
inline int64_t OptimizerElementBytes(int64_t param_bytes) {
  return 2 * kFp32Bytes + (param_bytes == kFp32Bytes ? 0 : kFp32Bytes);
}

}  // namespace sherd
