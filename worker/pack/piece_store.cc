#include "worker/pack/piece_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "worker/pack/new_file.h"
#include "worker/pack/source_file.h"

namespace sherd {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are written as memory has them");

// Before the ids of a piece: the numbers of tokens and of documents.
constexpr size_t kHeaderBytes = 16;
constexpr int64_t kCopyBytes = 4 << 20;

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string BytesOf(const std::vector<TokenId>& tokens, int id_bytes) {
  if (id_bytes == 4) {
    return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId)};
  }
  const std::vector<uint16_t> narrow(tokens.begin(), tokens.end());
  return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(uint16_t)};
}

// The plan that is in the directory must be ours; it may have been cut short by a kill, before any
// piece was written.
absl::Status KeepPlan(int descriptor, const std::string& path, const std::string& plan) {
  SHERD_ASSIGN_OR_RETURN(const SourceFile file, SourceFile::Open(path));
  SHERD_ASSIGN_OR_RETURN(const std::string found, file.Read(0, file.bytes()));
  if (found == plan) return absl::OkStatus();
  if (!absl::StartsWith(plan, found)) {
    return absl::FailedPreconditionError(
        absl::StrCat(ParentOf(path),
                     " was left by a run with another tokenizer, other files or other flags; "
                     "remove it to start anew"));
  }
  const ssize_t written = pwrite(descriptor, plan.data(), plan.size(), 0);
  if (written != static_cast<ssize_t>(plan.size())) {
    return FileFailure(path, "written", written < 0 ? errno : ENOSPC);
  }
  if (fsync(descriptor) != 0) return FileFailure(path, "written", errno);
  return SyncDirectory(ParentOf(path));
}

}  // namespace

absl::StatusOr<PieceStore> PieceStore::Open(const std::string& out, const std::string& plan,
                                            int id_bytes) {
  const std::string directory = out + ".pieces";
  if (mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
    return FileFailure(directory, "made", errno);
  }
  const std::string path = directory + "/plan";
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileFailure(path, "made", errno);
  PieceStore store(out, directory, descriptor, id_bytes);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process works in ", directory, "; wait for its end"));
  }
  SHERD_RETURN_IF_ERROR(KeepPlan(descriptor, path, plan));
  SHERD_RETURN_IF_ERROR(SyncDirectory(ParentOf(directory)));
  return store;
}

PieceStore::~PieceStore() {
  if (lock_ >= 0) close(lock_);
}

PieceStore::PieceStore(PieceStore&& other) noexcept
    : out_(std::move(other.out_)),
      directory_(std::move(other.directory_)),
      lock_(std::exchange(other.lock_, -1)),
      id_bytes_(other.id_bytes_) {}

std::string PieceStore::PathOf(size_t piece) const {
  return absl::StrFormat("%s/%08d", directory_, piece);
}

std::optional<PieceCounts> PieceStore::Find(size_t piece) const {
  const absl::StatusOr<SourceFile> file = SourceFile::Open(PathOf(piece));
  if (!file.ok() || file->bytes() < static_cast<int64_t>(kHeaderBytes)) return std::nullopt;
  const absl::StatusOr<std::string> header = file->Read(0, kHeaderBytes);
  if (!header.ok()) return std::nullopt;
  PieceCounts counts;
  std::memcpy(&counts.tokens, header->data(), 8);
  std::memcpy(&counts.documents, header->data() + 8, 8);
  const int64_t ids = file->bytes() - static_cast<int64_t>(kHeaderBytes);
  if (ids % id_bytes_ != 0 || ids / id_bytes_ != counts.tokens) return std::nullopt;
  return counts;
}

absl::Status PieceStore::Put(size_t piece, const TokenizedPiece& tokenized) const {
  char header[kHeaderBytes];
  const auto tokens = static_cast<int64_t>(tokenized.tokens.size());
  std::memcpy(header, &tokens, 8);
  std::memcpy(header + 8, &tokenized.documents, 8);
  const std::string path = PathOf(piece);
  const std::string unfinished = path + ".part";
  {
    const NewFile file(unfinished);
    SHERD_RETURN_IF_ERROR(file.Append({header, kHeaderBytes}));
    SHERD_RETURN_IF_ERROR(file.Append(BytesOf(tokenized.tokens, id_bytes_)));
    SHERD_RETURN_IF_ERROR(file.Sync());
  }
  if (rename(unfinished.c_str(), path.c_str()) != 0)
    return FileFailure(path, "given its name", errno);
  return SyncDirectory(directory_);
}

absl::Status PieceStore::Assemble(absl::string_view header, size_t pieces) {
  const std::string whole = directory_ + "/whole";
  {
    const NewFile file(whole);
    SHERD_RETURN_IF_ERROR(file.Append(header));
    for (size_t piece = 0; piece < pieces; ++piece) {
      SHERD_ASSIGN_OR_RETURN(const SourceFile source, SourceFile::Open(PathOf(piece)));
      for (auto at = static_cast<int64_t>(kHeaderBytes); at < source.bytes(); at += kCopyBytes) {
        SHERD_ASSIGN_OR_RETURN(const std::string part,
                               source.Read(at, std::min(source.bytes(), at + kCopyBytes)));
        SHERD_RETURN_IF_ERROR(file.Append(part));
      }
    }
    SHERD_RETURN_IF_ERROR(file.Sync());
  }
  // Unlike rename, link never takes the place of another file.
  if (link(whole.c_str(), out_.c_str()) != 0) {
    if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(out_, " exists"));
    return FileFailure(out_, "made", errno);
  }
  SHERD_RETURN_IF_ERROR(SyncDirectory(ParentOf(out_)));
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
  return error ? FileFailure(directory_, "removed", error.value()) : absl::OkStatus();
}

}  // namespace sherd
