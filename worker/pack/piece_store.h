#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/pack/documents.h"

namespace sherd {

// What a stored piece holds.
struct PieceCounts {
  int64_t tokens = 0;
  int64_t documents = 0;
};

// The directory beside a token file in which its pieces lie until all are there: a run that was
// killed and is started again finds them. A piece has its name when all of it is on stable storage.
// Thread-safe, but for Assemble.
class PieceStore {
 public:
  // Makes, or finds again, the directory for the file `out`. `plan` says all that decides what
  // pieces hold; ids have `id_bytes` (2 or 4) bytes each, the lowest first. kFailedPrecondition
  // when the directory is of another plan or another process works in it.
  static absl::StatusOr<PieceStore> Open(const std::string& out, const std::string& plan,
                                         int id_bytes);
  ~PieceStore();
  PieceStore(PieceStore&& other) noexcept;
  PieceStore& operator=(PieceStore&&) = delete;

  const std::string& directory() const { return directory_; }
  // None when the piece is not there whole.
  std::optional<PieceCounts> Find(size_t piece) const;
  // kResourceExhausted when no space is left.
  absl::Status Put(size_t piece, const TokenizedPiece& tokenized) const;
  // Writes `header` and the ids of pieces 0 … pieces − 1, all of which are there, to `out`, and
  // removes the directory. kAlreadyExists when `out` exists: it is never replaced.
  absl::Status Assemble(absl::string_view header, size_t pieces);

 private:
  PieceStore(std::string out, std::string directory, int lock, int id_bytes)
      : out_(std::move(out)), directory_(std::move(directory)), lock_(lock), id_bytes_(id_bytes) {}

  std::string PathOf(size_t piece) const;

  std::string out_;
  std::string directory_;
  // The plan's file, locked.
  int lock_;
  int id_bytes_;
};

}  // namespace sherd
