#include "worker/data/token_source.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/data/path_patterns.h"

namespace sherd {
namespace {

class FileSource final : public TokenSource {
 public:
  FileSource(std::vector<std::unique_ptr<TokenFile>> files, int64_t vocab)
      : files_(std::move(files)), vocab_(vocab) {
    for (const auto& file : files_) {
      starts_.push_back(tokens_);
      tokens_ += file->tokens();
    }
  }

  int64_t tokens() const override { return tokens_; }

  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    SHERD_CHECK(0 <= begin && 0 <= count && begin <= tokens_ - count);
    // The last file that starts at or before `begin`.
    auto file = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                    starts_.begin() - 1);
    while (count > 0) {
      const TokenFile& from = *files_[file];
      const int64_t first = begin - starts_[file];
      const int64_t part = std::min(count, from.tokens() - first);
      SHERD_RETURN_IF_ERROR(from.Read(first, part, out));
      SHERD_RETURN_IF_ERROR(CheckIds(from, first, out, part, vocab_));
      out += part;
      begin += part;
      count -= part;
      ++file;
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<TokenFile>> files_;
  const int64_t vocab_;
  std::vector<int64_t> starts_;
  int64_t tokens_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokens(const TokenFiles& files) {
  if (files.patterns.empty()) return absl::InvalidArgumentError("no data file is named");
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                         ExpandPatterns(files.root, files.patterns, files.format));
  std::vector<std::unique_ptr<TokenFile>> opened;
  // Sequences of an index may overlap, so that there is no telling from the size of files.
  int64_t left = std::numeric_limits<int64_t>::max();
  for (const std::string& path : paths) {
    SHERD_ASSIGN_OR_RETURN(std::unique_ptr<TokenFile> file,
                           OpenTokenFile(files.root, path, files.format));
    if (file->tokens() > left) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " and the files before it have more than 2^63 tokens"));
    }
    left -= file->tokens();
    opened.push_back(std::move(file));
  }
  return std::make_unique<FileSource>(std::move(opened), files.vocab);
}

}  // namespace sherd
