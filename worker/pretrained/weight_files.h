#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/roots.h"

namespace sherd {

inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kWeightsIndexFile[] = "model.safetensors.index.json";
inline constexpr int64_t kMaxWeightsIndexBytes = 64 << 20;
inline constexpr size_t kMaxWeightFiles = 1000;
// Of all files together: hundreds of thousands of tensors.
inline constexpr int64_t kMaxHeaderBytes = 64 << 20;

// What lies in a folder of published weights.
struct WeightFiles {
  struct Entry {
    size_t file = 0;
    SafetensorsEntry tensor;
  };
  std::vector<InputFile> files;
  // File by file.
  std::vector<Entry> entries;
  // Of all files.
  int64_t header_bytes = 0;
};

// Opens model.safetensors, or the files that model.safetensors.index.json names, in `folder` below
// `root` (worker/data/roots.h), and reads their headers. Index and files must name the same
// tensors, and files lie in the folder itself. kNotFound, kPermissionDenied or kInvalidArgument
// names the file and what is wrong.
absl::StatusOr<WeightFiles> OpenWeightFiles(const std::string& root, const std::string& folder);

// All of a file below `root` that has no more than `most` bytes; kInvalidArgument for a longer one.
absl::StatusOr<std::string> ReadWholeBelow(const std::string& root, const std::string& path,
                                           int64_t most);

}  // namespace sherd
