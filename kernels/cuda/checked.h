#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/cuda/driver.h"

namespace sherd {

// OK for success, else kInternal: "cudaEventRecord failed at cuda_device.cc:80: invalid argument".
// File and line are the caller's.
absl::Status Checked(CudaDriver& driver, CudaDriver::Error error, const char* call,
                     const char* file = __builtin_FILE(), int line = __builtin_LINE());

// "3.25 GiB", "17 MiB", "512 bytes".
std::string BytesText(int64_t bytes);

}  // namespace sherd
