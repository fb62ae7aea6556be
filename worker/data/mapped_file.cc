#include "worker/data/mapped_file.h"

#include <sys/mman.h>

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "worker/data/mapping_copy.h"

namespace sherd {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& root, const std::string& path) {
  SHERD_ASSIGN_OR_RETURN(InputFile file, OpenBelow(root, path));
  return MappedFile(std::move(file));
}

MappedFile::MappedFile(InputFile file) : file_(std::move(file)) {
  if (file_.bytes() == 0) return;
  void* const data = ::mmap(nullptr, static_cast<size_t>(file_.bytes()), PROT_READ, MAP_SHARED,
                            file_.descriptor(), 0);
  if (data != MAP_FAILED) data_ = static_cast<const char*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<char*>(data_), static_cast<size_t>(file_.bytes()));
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)) {}

absl::Status MappedFile::Read(int64_t offset, int64_t bytes, void* out) const {
  SHERD_CHECK(0 <= offset && 0 <= bytes && bytes <= file_.bytes() - offset);
  // The rest of a shorter file's last page reads as zeros, without a signal.
  if (data_ != nullptr && CopyFromMapping(data_ + offset, static_cast<size_t>(bytes), out) &&
      file_.Reaches(offset + bytes)) {
    return absl::OkStatus();
  }
  // Reading says what is wrong.
  return file_.Read(offset, bytes, out);
}

}  // namespace sherd
