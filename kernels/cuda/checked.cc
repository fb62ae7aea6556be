#include "kernels/cuda/checked.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sherd {

absl::Status Checked(CudaDriver& driver, CudaDriver::Error error, const char* call,
                     const char* file, int line) {
  if (error == CudaDriver::kSuccess) return absl::OkStatus();
  const std::string path = file;
  return absl::InternalError(absl::StrCat(call, " failed at ", path.substr(path.rfind('/') + 1),
                                          ":", line, ": ", driver.Text(error)));
}

std::string BytesText(int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  if (bytes >= int64_t{1} << 30) {
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1024 * kMiB));
  }
  if (bytes >= int64_t{1} << 20) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / kMiB);
  }
  return absl::StrCat(bytes, " bytes");
}

}  // namespace sherd
