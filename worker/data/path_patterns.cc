#include "worker/data/path_patterns.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/data/open_formats.h"
#include "worker/data/roots.h"

namespace sherd {
namespace {

constexpr size_t kMostFiles = 10'000;
constexpr char kMagic[] = "*?[";

bool IsThere(const std::string& root, const std::string& path) {
  const std::string joined = root.empty() ? path : (std::filesystem::path(root) / path).string();
  struct stat ignored;
  return lstat(joined.c_str(), &ignored) == 0;
}

// Walks a pattern from name to name.
class Expansion {
 public:
  Expansion(const std::string& root, const std::string& pattern)
      : root_(root), pattern_(pattern), names_(absl::StrSplit(pattern, '/')) {}

  absl::StatusOr<std::vector<std::string>> Run() {
    SHERD_RETURN_IF_ERROR(Walk("", 0));
    std::sort(matches_.begin(), matches_.end());
    return std::move(matches_);
  }

 private:
  // `prefix` is what the names before `index` matched, with a slash at its end unless it is empty.
  absl::Status Walk(const std::string& prefix, size_t index) {
    const bool last = index + 1 == names_.size();
    const std::string& name = names_[index];
    if (name.find_first_of(kMagic) == std::string::npos) {
      if (!last) return Walk(absl::StrCat(prefix, name, "/"), index + 1);
      if (IsThere(root_, prefix + name)) matches_.push_back(prefix + name);
      return absl::OkStatus();
    }
    SHERD_ASSIGN_OR_RETURN(const DirectoryNames found, ListBelow(root_, prefix));
    for (const std::string& entry : last ? found.files : found.directories) {
      if (fnmatch(name.c_str(), entry.c_str(), FNM_NOESCAPE) != 0) continue;
      if (!last) {
        SHERD_RETURN_IF_ERROR(Walk(absl::StrCat(prefix, entry, "/"), index + 1));
      } else if (matches_.size() == kMostFiles) {
        return absl::InvalidArgumentError(
            absl::StrCat(pattern_, " matches more than ", kMostFiles, " files"));
      } else {
        matches_.push_back(prefix + entry);
      }
    }
    return absl::OkStatus();
  }

  const std::string& root_;
  const std::string& pattern_;
  const std::vector<std::string> names_;
  std::vector<std::string> matches_;
};

// The pairs of files that a pattern of either, or of both without their endings, matches.
absl::StatusOr<std::vector<std::string>> ExpandPairs(const std::string& root,
                                                     const std::string& pattern) {
  std::vector<std::string> pairs;
  for (const std::string& one : {pattern, pattern + ".idx"}) {
    SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> files, Expansion(root, one).Run());
    for (const std::string& file : files) {
      const std::string prefix = MegatronPrefix(file);
      if (prefix != file) pairs.push_back(prefix);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandPatterns(const std::string& root,
                                                        const std::vector<std::string>& patterns,
                                                        TokenFormat format) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    if (pattern.find_first_of(kMagic) == std::string::npos || IsThere(root, pattern)) {
      files.push_back(pattern);
      continue;
    }
    SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> matches,
                           format == TokenFormat::kMegatron ? ExpandPairs(root, pattern)
                                                            : Expansion(root, pattern).Run());
    if (matches.empty()) {
      return absl::NotFoundError(absl::StrCat(pattern, " matches no file on the worker's machine"));
    }
    files.insert(files.end(), matches.begin(), matches.end());
    if (files.size() > kMostFiles) {
      return absl::InvalidArgumentError(
          absl::StrCat(pattern, " makes more than ", kMostFiles, " files of data"));
    }
  }
  return files;
}

}  // namespace sherd
