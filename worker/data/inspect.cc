#include "worker/data/inspect.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/data/job_tokens.h"
#include "worker/data/jsonl_look.h"
#include "worker/data/path_patterns.h"
#include "worker/data/roots.h"

namespace sherd {
namespace {

// Of each end of a file; whoever submits waits for the answer.
constexpr int64_t kSampleBytes = 1 << 20;

// At least so many tokens are in a file.
struct FileLook {
  int64_t tokens = 0;
  bool whole = true;
};

absl::StatusOr<FileLook> LookAtLines(const std::string& root, const std::string& path,
                                     int64_t vocab) {
  SHERD_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(root, path));
  SHERD_ASSIGN_OR_RETURN(const JsonlLook look, LookAtJsonl(file, vocab));
  if (look.whole && look.tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is empty; each line must be a JSON object, as in {\"text\": \"…\"}"));
  }
  return FileLook{look.tokens, look.whole};
}

absl::StatusOr<FileLook> LookAtFile(const TokenFiles& files, const std::string& path) {
  if (files.format == TokenFormat::kJsonl) return LookAtLines(files.root, path, files.vocab);
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file,
                         OpenTokenFile(files.root, path, files.format));
  const int64_t count = std::min(kSampleBytes / WidthOf(file->type()), file->tokens());
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (const int64_t begin : {int64_t{0}, file->tokens() - count}) {
    SHERD_RETURN_IF_ERROR(file->Read(begin, count, ids.data()));
    SHERD_RETURN_IF_ERROR(CheckIds(*file, begin, ids.data(), count, files.vocab));
  }
  return FileLook{file->tokens(), true};
}

absl::Status CheckFiles(const TokenFiles& files, int64_t seq_len) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                         ExpandPatterns(files.root, files.patterns, files.format));
  int64_t tokens = 0;
  bool whole = true;
  for (const std::string& path : paths) {
    SHERD_ASSIGN_OR_RETURN(const FileLook look, LookAtFile(files, path));
    // No more than are needed: all together may be above every number.
    if (tokens <= seq_len) tokens += std::min(look.tokens, seq_len + 1);
    whole = whole && look.whole;
  }
  // Of lines that were not read nothing is known.
  if (tokens > seq_len || !whole) return absl::OkStatus();
  const bool text = files.format == TokenFormat::kText || files.format == TokenFormat::kJsonl;
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(files.patterns, ", "), " holds ", tokens, text ? " bytes" : " tokens",
      ", less than one sequence of train.seq_len ", seq_len, " and the ", text ? "byte" : "token",
      " after it; give more ", text ? "text" : "data", " or a shorter train.seq_len"));
}

absl::Status InField(const char* field, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

}  // namespace

absl::Status InspectFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                          int64_t seq_len, int64_t vocab, const std::string& data_root,
                          const std::string& output_root) {
  if (data.train().empty())
    return absl::InvalidArgumentError("data.train: no file is named; name at least one");
  const auto check = [&](const char* field, const auto& patterns) {
    return InField(field,
                   CheckFiles(TokenFilesOf(patterns, data.format(), vocab, data_root), seq_len));
  };
  SHERD_RETURN_IF_ERROR(check("data.train", data.train()));
  if (!data.eval().empty()) SHERD_RETURN_IF_ERROR(check("data.eval", data.eval()));
  if (checkpoint.dir().empty()) return absl::OkStatus();
  return InField("checkpoint.dir", ResolveOutputDirectory(output_root, checkpoint.dir()).status());
}

}  // namespace sherd
