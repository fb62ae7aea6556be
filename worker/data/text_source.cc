#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/data/roots.h"
#include "worker/data/token_source.h"

namespace sherd {
namespace {

class TextSource final : public TokenSource {
 public:
  explicit TextSource(std::vector<InputFile> files) : files_(std::move(files)) {
    for (const InputFile& file : files_) {
      starts_.push_back(tokens_);
      tokens_ += file.bytes();
    }
  }

  int64_t tokens() const override { return tokens_; }

  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    SHERD_CHECK(0 <= begin && 0 <= count && begin <= tokens_ - count);
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    SHERD_RETURN_IF_ERROR(ReadBytes(begin, count, bytes.data()));
    std::copy(bytes.begin(), bytes.end(), out);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadBytes(int64_t begin, int64_t count, uint8_t* out) const {
    // The last file that starts at or before `begin`.
    auto file = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                    starts_.begin() - 1);
    while (count > 0) {
      const int64_t offset = begin - starts_[file];
      const int64_t part = std::min(count, files_[file].bytes() - offset);
      SHERD_RETURN_IF_ERROR(files_[file].Read(offset, part, out));
      if (const void* nul = std::memchr(out, 0, static_cast<size_t>(part))) {
        return absl::InvalidArgumentError(
            absl::StrCat(files_[file].name(), " is not text: byte ",
                         offset + (static_cast<const uint8_t*>(nul) - out), " is NUL"));
      }
      out += part;
      begin += part;
      count -= part;
      ++file;
    }
    return absl::OkStatus();
  }

  const std::vector<InputFile> files_;
  std::vector<int64_t> starts_;
  int64_t tokens_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSource>> OpenText(const std::string& root,
                                                      const std::vector<std::string>& paths) {
  if (paths.empty()) return absl::InvalidArgumentError("no data file is named");
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    SHERD_ASSIGN_OR_RETURN(InputFile file, OpenBelow(root, path));
    if (file.bytes() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is empty; name a file that holds text"));
    }
    files.push_back(std::move(file));
  }
  return std::make_unique<TextSource>(std::move(files));
}

}  // namespace sherd
