#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/element_range.h"
#include "plan/model_shape.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Of a checkpoint that training can go on from: all that it needs beside the tensors. Which samples
// come next, and the learning rate, follow from these and the step.
struct TrainingInfo {
  // One history of training: a start from scratch, or from a checkpoint that was not the newest,
  // and all that goes on from its newest one. Jobs of equal id may follow another in a directory.
  std::string lineage;
  // Normalised.
  v1::TrainSpec train;
  // Of all files of data.train.
  int64_t corpus_tokens = 0;
  // data.train's weights and data.validation_split, which decide on the samples too.
  std::vector<double> train_weights;
  double validation_split = 0;
  // Trained on so far.
  int64_t tokens = 0;
  // Of the last step; NaN: unknown.
  double loss = 0;
  // Steps' worth of samples that were left out because they diverged: step s trains on the samples
  // of step s + skipped_windows.
  int64_t skipped_windows = 0;
};

// What a checkpoint is of.
struct CheckpointInfo {
  std::string job_id;
  int64_t step = 0;
  int64_t epoch = 0;
  ModelShape model;
  std::string tokenizer;
  // Nothing: weights alone.
  std::optional<TrainingInfo> training = std::nullopt;
};
// "weights" or "training".
absl::string_view KindOf(const CheckpointInfo& info);

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
// `xxh3` are its ChunkChecksums (chunk_checksums.h); none before version 3.
struct StoredPiece {
  ElementRange columns;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t shard = 0;
  int64_t offset = 0;
  std::vector<uint64_t> xxh3 = {};

  int64_t bytes() const { return (end - begin) * 4; }
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
// A million pieces: weights and moments of 80 blocks, cut up for 1000 ranks.
inline constexpr int64_t kMaxManifestBytes = 256 << 20;

// {"checkpoint": {…}, "xxh3": checksum of "checkpoint" without white space}. A piece of all columns
// does not name them.
std::string FormatManifest(const Manifest& manifest);
// Checks everything: checksum, types, names of files, and that the pieces of each tensor cover it
// once and lie within their files. kInvalidArgument, kDataLoss for a wrong checksum. Reads version
// 2 as well, whose pieces have no checksums, and 1, whose pieces are of all columns: weights alone.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

// kInvalidArgument, naming the tensor, unless its pieces are as StoredTensor says and inside their
// shards. `tensor.elements` is the product of its shape.
absl::Status CheckPieces(const StoredTensor& tensor, const std::vector<ShardFileInfo>& shards);

}  // namespace sherd
