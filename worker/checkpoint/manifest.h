#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Elements [begin, end) of a tensor at a byte offset of a shard file.
struct StoredPiece {
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
  // In order; together exactly [0, elements).
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

// {"checkpoint": {…}, "xxh3": checksum of "checkpoint" without white space}.
std::string FormatManifest(const Manifest& manifest);
// Checks everything: checksum, types, names of files, and that the pieces of each tensor cover it
// once and lie within their files. kInvalidArgument, kDataLoss for a wrong checksum.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

// kInvalidArgument, naming the tensor, unless its pieces are in order, without gap or overlap, and
// inside their shards.
absl::Status CheckPieces(const StoredTensor& tensor, const std::vector<ShardFileInfo>& shards);

}  // namespace sherd
