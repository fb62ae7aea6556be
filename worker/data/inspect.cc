#include "worker/data/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
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

constexpr int64_t kMostTokens = std::numeric_limits<int64_t>::max();

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

absl::Status CheckFiles(const TokenFiles& files, int64_t seq_len, double held_out) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                         ExpandPatterns(files.root, files.patterns, files.format));
  int64_t tokens = 0;
  bool whole = true;
  for (const std::string& path : paths) {
    SHERD_ASSIGN_OR_RETURN(const FileLook look, LookAtFile(files, path));
    // All together may be above every number.
    tokens += std::min(look.tokens, kMostTokens - tokens);
    whole = whole && look.whole;
  }
  // Of lines that were not read nothing is known.
  if (!whole) return absl::OkStatus();
  if (tokens > seq_len) {
    return CheckSplit((tokens - 1) / seq_len, held_out, absl::StrJoin(files.patterns, ", "));
  }
  const bool text = files.format == TokenFormat::kText || files.format == TokenFormat::kJsonl;
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(files.patterns, ", "), " holds ", tokens, text ? " bytes" : " tokens",
      ", less than one sequence of train.seq_len ", seq_len, " and the ", text ? "byte" : "token",
      " after it; give more ", text ? "text" : "data", " or a shorter train.seq_len"));
}

absl::Status InField(const char* field, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

absl::Status CheckData(const v1::DataSpec& data, int64_t seq_len, int64_t vocab,
                       const std::string& root) {
  const auto check = [&](const char* field, const std::vector<std::string>& patterns,
                         double split) {
    const TokenFiles files = TokenFilesOf(patterns, data.format(), vocab, root);
    return InField(field, CheckFiles(files, seq_len, split));
  };
  for (const std::vector<std::string>& source : TrainSources(data)) {
    SHERD_RETURN_IF_ERROR(check("data.train", source, data.validation_split()));
  }
  if (data.eval().empty()) return absl::OkStatus();
  return check("data.eval", {data.eval().begin(), data.eval().end()}, 0);
}

}  // namespace

absl::Status CheckSplit(int64_t sequences, double held_out, const std::string& what) {
  if (held_out <= 0 || static_cast<double>(sequences) * held_out >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " holds ", sequences, sequences == 1 ? " sequence" : " sequences",
                   ", too few to hold out ", held_out, " of them; at least ",
                   static_cast<int64_t>(std::ceil(1 / held_out)),
                   " are needed: give more data, a shorter train.seq_len or a larger "
                   "data.validation_split"));
}

absl::Status InspectFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                          int64_t seq_len, int64_t vocab, const std::string& data_root,
                          const std::string& output_root) {
  if (data.train().empty())
    return absl::InvalidArgumentError("data.train: no file is named; name at least one");
  if (HoldsTokens(data)) SHERD_RETURN_IF_ERROR(CheckData(data, seq_len, vocab, data_root));
  if (checkpoint.dir().empty()) return absl::OkStatus();
  return InField("checkpoint.dir", ResolveOutputDirectory(output_root, checkpoint.dir()).status());
}

}  // namespace sherd
