#include "worker/data/inspect.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/roots.h"

namespace sherd {
namespace {

// Of each end of a file; whoever submits waits for the answer.
constexpr int64_t kSampleBytes = 1 << 20;

absl::Status CheckChunk(const InputFile& file, const uint8_t* chunk, int64_t bytes, int64_t offset,
                        int64_t vocab) {
  const void* nul = std::memchr(chunk, 0, static_cast<size_t>(bytes));
  if (nul != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.name(), " is not text: byte ", offset + (static_cast<const uint8_t*>(nul) - chunk),
        " is NUL; data.format text takes plain text files"));
  }
  const uint8_t* largest = std::max_element(chunk, chunk + bytes);
  if (*largest >= vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), " holds byte ", int{*largest}, " at ", offset + (largest - chunk),
                     ", but model.vocab is ", vocab, "; tokenizer bytes needs a vocab of 256"));
  }
  return absl::OkStatus();
}

// Returns the file's size.
absl::StatusOr<int64_t> CheckTextFile(const std::string& root, const std::string& path,
                                      int64_t vocab) {
  SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow(root, path));
  if (file.bytes() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is empty; name a file that holds text"));
  }
  const int64_t bytes = std::min(kSampleBytes, file.bytes());
  std::vector<uint8_t> chunk(static_cast<size_t>(bytes));
  for (const int64_t offset : {int64_t{0}, file.bytes() - bytes}) {
    SHERD_RETURN_IF_ERROR(file.Read(offset, bytes, chunk.data()));
    SHERD_RETURN_IF_ERROR(CheckChunk(file, chunk.data(), bytes, offset, vocab));
  }
  return file.bytes();
}

template <typename Paths>
absl::Status CheckTexts(const char* field, const Paths& paths, const std::string& root,
                        int64_t seq_len, int64_t vocab) {
  int64_t tokens = 0;
  std::string names;
  for (const std::string& path : paths) {
    const absl::StatusOr<int64_t> bytes = CheckTextFile(root, path, vocab);
    if (!bytes.ok()) {
      return absl::Status(bytes.status().code(),
                          absl::StrCat(field, ": ", bytes.status().message()));
    }
    tokens += *bytes;
    absl::StrAppend(&names, names.empty() ? "" : ", ", path);
  }
  if (tokens < seq_len + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ": ", names, " holds ", tokens, " bytes, less than one sequence of train.seq_len ",
        seq_len, " and the byte after it; give more text or a shorter train.seq_len"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InspectFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                          int64_t seq_len, int64_t vocab, const std::string& data_root,
                          const std::string& output_root) {
  if (data.train().empty())
    return absl::InvalidArgumentError("data.train: no file is named; name at least one");
  SHERD_RETURN_IF_ERROR(CheckTexts("data.train", data.train(), data_root, seq_len, vocab));
  if (!data.eval().empty()) {
    SHERD_RETURN_IF_ERROR(CheckTexts("data.eval", data.eval(), data_root, seq_len, vocab));
  }
  if (checkpoint.dir().empty()) return absl::OkStatus();
  const absl::Status output = ResolveOutputDirectory(output_root, checkpoint.dir()).status();
  return absl::Status(output.code(), absl::StrCat("checkpoint.dir: ", output.message()));
}

}  // namespace sherd
