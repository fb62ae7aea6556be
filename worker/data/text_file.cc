#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/open_formats.h"

namespace sherd {
namespace {

class TextFile final : public TokenFile {
 public:
  explicit TextFile(MappedFile file) : file_(std::move(file)) {}

  const std::string& name() const override { return file_.name(); }
  int64_t tokens() const override { return file_.bytes(); }
  int64_t bytes() const override { return file_.bytes(); }
  IdType type() const override { return IdType::kU8; }

  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    SHERD_RETURN_IF_ERROR(ReadIds(file_, IdType::kU8, begin, count, out));
    const int32_t* const nul = std::find(out, out + count, 0);
    if (nul == out + count) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name(), " is not text: byte ", begin + (nul - out),
                     " is NUL; data.format text takes plain text files"));
  }

 private:
  const MappedFile file_;
};

}  // namespace

std::unique_ptr<TokenFile> OpenTextFile(MappedFile file) {
  return std::make_unique<TextFile>(std::move(file));
}

}  // namespace sherd
