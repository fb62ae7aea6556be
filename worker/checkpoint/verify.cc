#include "worker/checkpoint/verify.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/readable_file.h"

namespace sherd {
namespace {

// A piece and whose it is.
struct NamedPiece {
  const StoredTensor* tensor;
  const StoredPiece* piece;
};

// Reads a file from front to back.
class FileReader {
 public:
  explicit FileReader(const ReadableFile& file)
      : file_(file), state_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  int64_t at() const { return at_; }
  uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

  // The next bytes, no more than kChunkBytes; valid until the next call.
  absl::StatusOr<absl::string_view> Next(int64_t bytes) {
    chunk_.resize(static_cast<size_t>(bytes));
    SHERD_RETURN_IF_ERROR(file_.Read(at_, bytes, chunk_.data()));
    XXH3_64bits_update(state_.get(), chunk_.data(), chunk_.size());
    at_ += bytes;
    return absl::string_view(chunk_.data(), chunk_.size());
  }

  absl::Status SkipTo(int64_t end) {
    while (at_ < end) SHERD_RETURN_IF_ERROR(Next(std::min(kChunkBytes, end - at_)).status());
    return absl::OkStatus();
  }

 private:
  const ReadableFile& file_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
  std::vector<char> chunk_;
  int64_t at_ = 0;
};

absl::Status Damaged(const ReadableFile& file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file.path(), " is damaged: ", what));
}

absl::Status VerifyPiece(const ReadableFile& file, const NamedPiece& named, FileReader& reader) {
  const StoredPiece& piece = *named.piece;
  if (piece.offset < reader.at()) {
    return Damaged(file, absl::StrCat("\"", named.tensor->name, "\" overlaps another tensor"));
  }
  SHERD_RETURN_IF_ERROR(reader.SkipTo(piece.offset));
  const int64_t end = piece.offset + piece.bytes();
  for (const uint64_t expected : piece.xxh3) {
    SHERD_ASSIGN_OR_RETURN(const absl::string_view chunk,
                           reader.Next(std::min(kChunkBytes, end - reader.at())));
    if (Checksum(chunk) == expected) continue;
    return Damaged(file, absl::StrCat("the checksum of \"", named.tensor->name, "\" is wrong"));
  }
  return reader.SkipTo(end);
}

absl::Status VerifyFile(const std::string& path, const ShardFileInfo& shard,
                        const std::vector<NamedPiece>& pieces) {
  SHERD_ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::OpenSized(path, shard.bytes));
  FileReader reader(file);
  for (const NamedPiece& piece : pieces) SHERD_RETURN_IF_ERROR(VerifyPiece(file, piece, reader));
  SHERD_RETURN_IF_ERROR(reader.SkipTo(file.bytes()));
  return reader.digest() == shard.xxh3 ? absl::OkStatus() : Damaged(file, "its checksum is wrong");
}

}  // namespace

absl::Status VerifyFiles(const std::string& directory, const Manifest& manifest) {
  std::vector<std::vector<NamedPiece>> by_file(manifest.shards.size());
  for (const StoredTensor& tensor : manifest.tensors) {
    for (const StoredPiece& piece : tensor.pieces) {
      by_file[static_cast<size_t>(piece.shard)].push_back({&tensor, &piece});
    }
  }
  for (size_t i = 0; i < by_file.size(); ++i) {
    std::sort(by_file[i].begin(), by_file[i].end(), [](const NamedPiece& a, const NamedPiece& b) {
      return a.piece->offset < b.piece->offset;
    });
    const ShardFileInfo& shard = manifest.shards[i];
    SHERD_RETURN_IF_ERROR(VerifyFile(absl::StrCat(directory, "/", shard.file), shard, by_file[i]));
  }
  return absl::OkStatus();
}

}  // namespace sherd
