#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/readable_file.h"
#include "worker/checkpoint/training_state.h"

namespace sherd {
namespace {

constexpr int64_t kElementBytes = sizeof(float);
constexpr int64_t kChunkElements = kChunkBytes / kElementBytes;

// Elements [from, from + count) of a block of a tensor's columns that are those from `to` on of
// another block.
struct Overlap {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
};

// What elements [begin, end) of the block `columns` and the target have in common.
std::vector<Overlap> OverlapsOf(const ElementRange& columns, int64_t begin, int64_t end,
                                const TensorTarget& target) {
  std::vector<Overlap> overlaps;
  const auto add = [&](int64_t from, int64_t to, int64_t count) {
    // Cut to the target's range of its block.
    const int64_t lead = std::max<int64_t>(0, target.begin - to);
    count = std::min(count, target.end - to) - lead;
    if (count > 0) overlaps.push_back({from + lead, to + lead, count});
  };
  if (columns == target.columns) {
    add(begin, begin, end - begin);
    return overlaps;
  }
  const ElementRange common{std::max(columns.begin, target.columns.begin),
                            std::min(columns.end, target.columns.end)};
  if (common.begin >= common.end) return overlaps;
  const int64_t width = columns.size();
  const int64_t target_width = target.columns.size();
  const int64_t first = std::max(begin / width, target.begin / target_width);
  const int64_t last = std::min((end - 1) / width, (target.end - 1) / target_width);
  for (int64_t row = first; row <= last; ++row) {
    // Of the row, what the elements hold of the common columns.
    const int64_t from = std::max(begin, row * width + (common.begin - columns.begin));
    const int64_t to = std::min(end, row * width + (common.end - columns.begin));
    if (from >= to) continue;
    const int64_t column = columns.begin + from - row * width;
    add(from, row * target_width + (column - target.columns.begin), to - from);
  }
  return overlaps;
}

// A piece that may hold something of the targets.
struct Source {
  const StoredTensor* tensor;
  const StoredPiece* piece;
  const std::vector<const TensorTarget*>* targets;
};

class TargetLoader {
 public:
  TargetLoader(const std::string& directory, const Manifest& manifest,
               const std::function<absl::Status(int64_t bytes)>& watch)
      : directory_(directory), manifest_(manifest), watch_(watch) {}

  absl::Status Load(const Source& source) {
    const StoredPiece& piece = *source.piece;
    for (size_t chunk = 0; chunk < piece.xxh3.size(); ++chunk) {
      const int64_t begin = piece.begin + static_cast<int64_t>(chunk) * kChunkElements;
      const int64_t end = std::min(begin + kChunkElements, piece.end);
      bool read = false;
      for (const TensorTarget* target : *source.targets) {
        const std::vector<Overlap> overlaps = OverlapsOf(piece.columns, begin, end, *target);
        if (overlaps.empty()) continue;
        if (!read) SHERD_RETURN_IF_ERROR(ReadChunk(source, chunk, begin, end));
        read = true;
        for (const Overlap& part : overlaps) {
          std::memcpy(target->data + (part.to - target->begin), chunk_.data() + (part.from - begin),
                      static_cast<size_t>(part.count * kElementBytes));
          filled_ += part.count;
        }
      }
    }
    return absl::OkStatus();
  }

  int64_t bytes_read() const { return bytes_read_; }
  int64_t filled() const { return filled_; }

 private:
  absl::Status Open(int64_t shard) {
    if (file_.has_value() && shard_ == shard) return absl::OkStatus();
    const ShardFileInfo& described = manifest_.shards[static_cast<size_t>(shard)];
    SHERD_ASSIGN_OR_RETURN(
        ReadableFile file,
        ReadableFile::OpenSized(absl::StrCat(directory_, "/", described.file), described.bytes));
    file_.emplace(std::move(file));
    shard_ = shard;
    return absl::OkStatus();
  }

  absl::Status ReadChunk(const Source& source, size_t chunk, int64_t begin, int64_t end) {
    const StoredPiece& piece = *source.piece;
    SHERD_RETURN_IF_ERROR(Open(piece.shard));
    chunk_.resize(static_cast<size_t>(end - begin));
    const int64_t bytes = (end - begin) * kElementBytes;
    SHERD_RETURN_IF_ERROR(
        file_->Read(piece.offset + (begin - piece.begin) * kElementBytes, bytes, chunk_.data()));
    bytes_read_ += bytes;
    const absl::string_view text(reinterpret_cast<const char*>(chunk_.data()),
                                 static_cast<size_t>(bytes));
    if (Checksum(text) != piece.xxh3[chunk]) {
      return absl::DataLossError(absl::StrCat(file_->path(), " is damaged: the checksum of \"",
                                              source.tensor->name, "\" is wrong"));
    }
    return watch_ ? watch_(bytes) : absl::OkStatus();
  }

  const std::string& directory_;
  const Manifest& manifest_;
  const std::function<absl::Status(int64_t bytes)>& watch_;
  std::optional<ReadableFile> file_;
  int64_t shard_ = 0;
  std::vector<float> chunk_;
  int64_t bytes_read_ = 0;
  int64_t filled_ = 0;
};

using TargetsByTensor = std::map<std::string, std::vector<const TensorTarget*>>;

// kFailedPrecondition unless the tensor can fill the targets.
absl::Status CheckTensor(const std::string& directory, const StoredTensor& tensor,
                         const std::vector<const TensorTarget*>& targets) {
  for (const TensorTarget* target : targets) {
    if (target->shape == tensor.shape) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " holds \"", tensor.name, "\" in another shape"));
  }
  for (const StoredPiece& piece : tensor.pieces) {
    if (!piece.xxh3.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " was written by an older version, without checksums of the tensors' parts"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> LoadTargets(const std::string& directory, const Manifest& manifest,
                                    absl::Span<const TensorTarget> targets,
                                    const std::function<absl::Status(int64_t bytes)>& watch) {
  TargetsByTensor wanted;
  int64_t elements = 0;
  for (const TensorTarget& target : targets) {
    if (target.begin >= target.end) continue;
    wanted[target.name].push_back(&target);
    elements += target.end - target.begin;
  }
  std::vector<Source> sources;
  for (const StoredTensor& tensor : manifest.tensors) {
    const auto found = wanted.find(tensor.name);
    if (found == wanted.end()) continue;
    SHERD_RETURN_IF_ERROR(CheckTensor(directory, tensor, found->second));
    for (const StoredPiece& piece : tensor.pieces) {
      sources.push_back({&tensor, &piece, &found->second});
    }
  }
  // So that every file is opened once and read from front to back.
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) {
    return std::pair(a.piece->shard, a.piece->offset) < std::pair(b.piece->shard, b.piece->offset);
  });
  TargetLoader loader(directory, manifest, watch);
  for (const Source& source : sources) SHERD_RETURN_IF_ERROR(loader.Load(source));
  if (loader.filled() == elements) return loader.bytes_read();
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " does not hold all tensors of the model"));
}

}  // namespace sherd
