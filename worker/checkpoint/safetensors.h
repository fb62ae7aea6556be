#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

// The safetensors format: eight bytes, the header's length (little endian); the header, a JSON
// object {"NAME": {"dtype": "F32", "shape": […], "data_offsets": [begin, end]}, …} with an optional
// "__metadata__" of strings, padded with spaces to a multiple of 8 bytes; the tensors' data,
// without gaps. Offsets count from the end of the header.
inline constexpr int64_t kMaxSafetensorsHeader = 16 << 20;

// A tensor as the header describes it.
struct SafetensorsEntry {
  std::string name;
  // "F32", "BF16", …
  std::string dtype;
  std::vector<int64_t> shape;
  // From the start of the file.
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  // By offset.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  // Where the data start.
  int64_t bytes = 0;
};

// Bytes of an element; kInvalidArgument for a type that the format does not have.
absl::StatusOr<int64_t> SafetensorsElementBytes(absl::string_view dtype);

// Reads a header whose JSON part is `text`, of a file of `file_bytes` bytes. Checks everything:
// types, duplicate names, sizes against shapes, every offset, overlaps and gaps. kInvalidArgument
// names the tensor and what is wrong.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         int64_t file_bytes);

// Reads the header of a file, of which it loads no more than 16 MiB. Errors name the file:
// kNotFound, kInvalidArgument, … .
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path);

// Reads `bytes` bytes at `offset` of a file.
using ReadAt = std::function<absl::Status(int64_t offset, int64_t bytes, void* out)>;
// The same of an open file of `file_bytes` bytes that errors call `name`.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& name, int64_t file_bytes,
                                                        const ReadAt& read);

// The first bytes of a file with these tensors one after another in the order given; reads only
// name, dtype and shape of each.
std::string FormatSafetensorsHeader(const std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace sherd
