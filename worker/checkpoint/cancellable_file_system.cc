#include "worker/checkpoint/cancellable_file_system.h"

#include <utility>

#include "common/status_macros.h"

namespace sherd {
namespace {

class CancellableFile final : public OutputFile {
 public:
  CancellableFile(std::unique_ptr<OutputFile> file, const CancellableFileSystem& files)
      : file_(std::move(file)), files_(files) {}
  absl::Status Append(absl::string_view bytes) override {
    SHERD_RETURN_IF_ERROR(files_.Check());
    return file_->Append(bytes);
  }
  absl::Status Sync() override {
    SHERD_RETURN_IF_ERROR(files_.Check());
    return file_->Sync();
  }

 private:
  const std::unique_ptr<OutputFile> file_;
  const CancellableFileSystem& files_;
};

}  // namespace

absl::Status CancellableFileSystem::Check() const {
  ++operations_;
  return cancelled_ ? absl::CancelledError("the checkpoint was given up") : absl::OkStatus();
}

absl::Status CancellableFileSystem::MakeDirectories(const std::string& path) {
  SHERD_RETURN_IF_ERROR(Check());
  return files_.MakeDirectories(path);
}

absl::StatusOr<std::unique_ptr<OutputFile>> CancellableFileSystem::Create(const std::string& path) {
  SHERD_RETURN_IF_ERROR(Check());
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, files_.Create(path));
  return std::make_unique<CancellableFile>(std::move(file), *this);
}

absl::StatusOr<std::vector<std::string>> CancellableFileSystem::List(const std::string& directory) {
  SHERD_RETURN_IF_ERROR(Check());
  return files_.List(directory);
}

absl::Status CancellableFileSystem::SyncDirectory(const std::string& path) {
  SHERD_RETURN_IF_ERROR(Check());
  return files_.SyncDirectory(path);
}

absl::Status CancellableFileSystem::RenameOrExchange(const std::string& from,
                                                     const std::string& to) {
  SHERD_RETURN_IF_ERROR(Check());
  return files_.RenameOrExchange(from, to);
}

absl::Status CancellableFileSystem::Rename(const std::string& from, const std::string& to) {
  SHERD_RETURN_IF_ERROR(Check());
  return files_.Rename(from, to);
}

absl::Status CancellableFileSystem::Remove(const std::string& path) {
  SHERD_RETURN_IF_ERROR(Check());
  return files_.Remove(path);
}

}  // namespace sherd
