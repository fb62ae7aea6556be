#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/nccl/nccl_api.h"

namespace sherd {

// The name by which the dynamic linker finds NCCL.
inline constexpr char kNcclLibrary[] = "libnccl.so.2";

// Opens NCCL's library and finds every entry point; it stays open. The file is the first of `paths`
// that opens. kUnavailable when none does, with what the linker says of each; kFailedPrecondition,
// with version and file, for a library older than 2.19, which cannot register memory, or one
// without an entry point, which is named; kUnimplemented when this build had no nccl.h.
absl::StatusOr<std::unique_ptr<NcclApi>> OpenNccl(const std::vector<std::string>& paths = {
                                                      kNcclLibrary});

}  // namespace sherd
