#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/element_range.h"
#include "plan/model_shape.h"

namespace sherd {

// What a checkpoint is of.
struct CheckpointInfo {
  std::string job_id;
  int64_t step = 0;
  int64_t epoch = 0;
  ModelShape model;
  std::string tokenizer;
};

// One rank's file, as the ranks tell each other: sizes and checksum of what was written.
struct ShardFileInfo {
  std::string file;
  int64_t bytes = 0;
  // XXH3, 64 bits, of the whole file.
  uint64_t xxh3 = 0;

  // Short text, and back. kInvalidArgument.
  std::string Serialize() const;
  static absl::StatusOr<ShardFileInfo> Parse(absl::string_view text);
  friend bool operator==(const ShardFileInfo&, const ShardFileInfo&) = default;
};

// Elements [begin, end) of the block `columns` of a tensor's columns, in row-major order of that
// block, at a byte offset of a shard file. A tensor is a matrix here (ColumnsOf in piece_name.h).
struct StoredPiece {
  ElementRange columns;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t shard = 0;
  int64_t offset = 0;
};

struct StoredTensor {
  std::string name;
  // "F32".
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  // By block, then by element. The blocks tile the tensor's columns, and the pieces of each are
  // together all of its elements, once.
  std::vector<StoredPiece> pieces;
};

// The table of contents of a checkpoint, written last: a directory without a valid one is none.
struct Manifest {
  CheckpointInfo info;
  std::vector<ShardFileInfo> shards;
  std::vector<StoredTensor> tensors;
};

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = 64 << 20;

// {"checkpoint": {…}, "xxh3": checksum of "checkpoint" without white space}. A piece of all columns
// does not name them.
std::string FormatManifest(const Manifest& manifest);
// Checks everything: checksum, types, names of files, and that the pieces of each tensor cover it
// once and lie within their files. kInvalidArgument, kDataLoss for a wrong checksum. Reads version
// 1 as well, whose pieces are of all columns.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

// kInvalidArgument, naming the tensor, unless its pieces are as StoredTensor says and inside their
// shards. `tensor.elements` is the product of its shape.
absl::Status CheckPieces(const StoredTensor& tensor, const std::vector<ShardFileInfo>& shards);

}  // namespace sherd
