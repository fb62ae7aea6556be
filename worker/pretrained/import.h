#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "plan/model_shape.h"

namespace sherd {

struct ImportOptions {
  std::string folder;
  // The checkpoint's directory, which must not hold anything yet.
  std::string checkpoint;
  int threads = 1;
  // A shard file has at most so many bytes of weights; at least 4.
  int64_t shard_bytes = int64_t{128} << 20;
};

// What `sherd import` or `sherd export` has written.
struct Transferred {
  std::string path;
  ModelShape model;
  int64_t parameters = 0;
  int64_t bytes = 0;
  int64_t files = 0;
};

// Makes a checkpoint of weights alone out of a folder of the common Python stack. It appears under
// its name whole and durable, or not at all. Threads read and write ranges of it side by side, each
// with `shard_bytes` of memory. Errors of PretrainedFolder and of writing a checkpoint name the
// file; kFailedPrecondition when something is at `checkpoint`.
absl::StatusOr<Transferred> ImportFolder(const ImportOptions& options);

// kFailedPrecondition when there is something in `directory`.
absl::Status CheckFresh(const std::string& directory);

}  // namespace sherd
