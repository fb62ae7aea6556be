#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/piece_name.h"

namespace sherd {
namespace {

// Walks the pieces of a tensor in order: which elements of its columns are there so far.
class Coverage {
 public:
  explicit Coverage(const StoredTensor& tensor)
      : tensor_(tensor),
        columns_(ColumnsOf(tensor.shape)),
        rows_(tensor.elements == 0 ? 0 : tensor.elements / columns_) {}

  absl::Status Add(const StoredPiece& piece) {
    if (piece.columns != block_) {
      SHERD_RETURN_IF_ERROR(CheckBlock());
      if (piece.columns.begin != block_.end || piece.columns.end <= piece.columns.begin ||
          piece.columns.end > columns_) {
        return Wrong(absl::StrCat("missing or twice in columns ", piece.columns.begin, " to ",
                                  piece.columns.end, " after column ", block_.end));
      }
      block_ = piece.columns;
      end_ = 0;
    }
    if (piece.begin != end_ || piece.end <= piece.begin || piece.end > BlockElements()) {
      return Wrong(absl::StrCat("missing or twice at ", end_, InBlock()));
    }
    end_ = piece.end;
    return absl::OkStatus();
  }

  absl::Status CheckComplete() const {
    SHERD_RETURN_IF_ERROR(CheckBlock());
    if (tensor_.elements == 0 || block_.end == columns_) return absl::OkStatus();
    return Wrong(absl::StrCat("missing from column ", block_.end, " on"));
  }

 private:
  int64_t BlockElements() const { return rows_ * block_.size(); }
  absl::Status CheckBlock() const {
    if (end_ == BlockElements()) return absl::OkStatus();
    return Wrong(absl::StrCat("missing from ", end_, " on", InBlock()));
  }
  std::string InBlock() const {
    if (block_.size() == columns_ || block_.size() == 0) return "";
    return absl::StrCat(" of columns ", block_.begin, " to ", block_.end);
  }
  absl::Status Wrong(absl::string_view where) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest has elements of \"", tensor_.name, "\" ", where));
  }

  const StoredTensor& tensor_;
  const int64_t columns_;
  const int64_t rows_;
  // The block of the last piece, and its elements so far.
  ElementRange block_;
  int64_t end_ = 0;
};

absl::Status CheckPlace(const StoredTensor& tensor, const StoredPiece& piece,
                        const std::vector<ShardFileInfo>& shards) {
  if (piece.shard < 0 || piece.shard >= static_cast<int64_t>(shards.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest puts \"", tensor.name, "\" into a file that it does not name"));
  }
  const int64_t bytes = piece.bytes();
  const ShardFileInfo& shard = shards[static_cast<size_t>(piece.shard)];
  if (bytes > shard.bytes || piece.offset < 0 || piece.offset > shard.bytes - bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest puts \"", tensor.name, "\" past the end of ", shard.file));
  }
  if (piece.xxh3.empty() || static_cast<int64_t>(piece.xxh3.size()) == ChunksOf(bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the manifest has too few or too many checksums of \"", tensor.name, "\""));
}

}  // namespace

absl::Status CheckPieces(const StoredTensor& tensor, const std::vector<ShardFileInfo>& shards) {
  Coverage coverage(tensor);
  for (const StoredPiece& piece : tensor.pieces) {
    SHERD_RETURN_IF_ERROR(coverage.Add(piece));
    SHERD_RETURN_IF_ERROR(CheckPlace(tensor, piece, shards));
  }
  return coverage.CheckComplete();
}

}  // namespace sherd
