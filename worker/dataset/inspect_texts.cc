#include "worker/dataset/inspect_texts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/data/inspect.h"
#include "worker/data/job_tokens.h"
#include "worker/data/jsonl_lines.h"
#include "worker/data/mapped_file.h"
#include "worker/data/path_patterns.h"
#include "worker/dataset/job_dataset.h"
#include "worker/dataset/prompt_file.h"
#include "worker/dataset/text_codec.h"

namespace sherd {
namespace {

// Of each end of a file; whoever submits waits for the answer.
constexpr int64_t kEndBytes = 1 << 20;

absl::Status InField(const char* field, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

// The files of a list, looked at one after another.
class TextLook {
 public:
  // Looks for enough sequences to hold out a part of them (0: none).
  TextLook(v1::DataFormat format, int64_t seq_len, double held_out, const TextCodec& codec)
      : format_(format),
        seq_len_(seq_len),
        held_out_(held_out),
        enough_(held_out > 0 ? static_cast<int64_t>(std::ceil(1 / held_out)) : 1),
        codec_(codec),
        writer_(codec),
        prompts_(codec) {}

  absl::Status LookAt(const std::string& root, const std::string& path) {
    SHERD_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(root, path));
    if (file.bytes() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is empty; name a file with text"));
    }
    const bool small = file.bytes() <= 2 * kEndBytes;
    const int64_t first = small ? file.bytes() : kEndBytes;
    whole_ = whole_ && small;
    const bool text = format_ == v1::DATA_FORMAT_TEXT;
    SHERD_RETURN_IF_ERROR(text ? LookAtText(file, 0, first) : LookAtLines(file, 0, first));
    if (small) return absl::OkStatus();
    const int64_t last = file.bytes() - kEndBytes;
    return text ? LookAtText(file, last, file.bytes()) : LookAtLastLines(file, last);
  }

  // That there is a sequence in them, unless that cannot be seen.
  absl::Status Check(const std::vector<std::string>& patterns) const {
    const std::string names = absl::StrJoin(patterns, ", ");
    if (!whole_ || HasEnough()) return absl::OkStatus();
    if (format_ == v1::DATA_FORMAT_PROMPT_COMPLETION) {
      if (sequences_ > 0) return CheckSplit(sequences_, held_out_, names);
      return absl::InvalidArgumentError(absl::StrCat(
          names, " holds ", lines_, " lines, and none has a completion that begins within ",
          seq_len_ + 1, " tokens; give a longer train.seq_len or shorter prompts"));
    }
    const auto tokens = static_cast<int64_t>(tokens_.size());
    if (tokens > seq_len_) return CheckSplit((tokens - 1) / seq_len_, held_out_, names);
    return absl::InvalidArgumentError(absl::StrCat(
        names, " holds ", tokens, " tokens, less than one sequence of train.seq_len ", seq_len_,
        " and the token after it; give more text or a shorter "
        "train.seq_len"));
  }

 private:
  absl::Status LookAtText(const MappedFile& file, int64_t begin, int64_t end) {
    std::string text(static_cast<size_t>(end - begin), '\0');
    SHERD_RETURN_IF_ERROR(file.Read(begin, end - begin, text.data()));
    if (const size_t nul = text.find('\0'); nul != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name(), " is not text: byte ", begin + static_cast<int64_t>(nul),
                       " is NUL; data.format text takes plain text files"));
    }
    if (!Counts()) return absl::OkStatus();
    writer_.Append(text, tokens_);
    const std::optional<TokenId> end_token = codec_.End();
    if (end_token.has_value()) tokens_.push_back(*end_token);
    return absl::OkStatus();
  }

  bool HasEnough() const {
    return sequences_ >= enough_ || static_cast<int64_t>(tokens_.size()) > enough_ * seq_len_;
  }
  // Whether more must be tokenized: of files that are read whole, as long as there is not enough.
  bool Counts() const { return whole_ && !HasEnough(); }

  // Lines up to the one that ends at or behind `stop`.
  absl::Status LookAtLines(const MappedFile& file, int64_t begin, int64_t stop) {
    JsonlLines lines(file, begin, file.bytes());
    std::array<std::string, 2> texts;
    PromptLine line;
    while (lines.next_start() < stop) {
      const bool prompts = format_ == v1::DATA_FORMAT_PROMPT_COMPLETION;
      SHERD_ASSIGN_OR_RETURN(const bool found,
                             prompts ? lines.NextOf(PromptEncoder::kKeys, absl::MakeSpan(texts))
                                     : lines.Next(texts[0]));
      if (!found) break;
      ++lines_;
      if (!Counts()) continue;
      if (!prompts) {
        writer_.Append(texts[0], tokens_);
        continue;
      }
      prompts_.Encode(texts[0], texts[1], line);
      const auto length = static_cast<int64_t>(line.tokens.size());
      sequences_ += PredictedTokens(line.prompt, length, seq_len_) > 0 ? 1 : 0;
    }
    return absl::OkStatus();
  }

  absl::Status LookAtLastLines(const MappedFile& file, int64_t from) {
    std::string end(static_cast<size_t>(file.bytes() - from), '\0');
    SHERD_RETURN_IF_ERROR(file.Read(from, file.bytes() - from, end.data()));
    const size_t newline = end.find('\n');
    if (newline == std::string::npos) return absl::OkStatus();
    return LookAtLines(file, from + static_cast<int64_t>(newline) + 1, file.bytes());
  }

  const v1::DataFormat format_;
  const int64_t seq_len_;
  const double held_out_;
  const int64_t enough_;
  const TextCodec& codec_;
  TextCodec::Writer writer_;
  PromptEncoder prompts_;
  // All files so far were read whole.
  bool whole_ = true;
  std::vector<TokenId> tokens_;
  int64_t lines_ = 0;
  int64_t sequences_ = 0;
};

absl::Status LookAtList(const v1::DataSpec& data, const std::vector<std::string>& patterns,
                        int64_t seq_len, double held_out, const TextCodec& codec,
                        const std::string& root) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                         ExpandPatterns(root, patterns, TokenFormat::kText));
  SHERD_RETURN_IF_ERROR(CheckTextBytes(root, files, data.format()));
  TextLook look(data.format(), seq_len, held_out, codec);
  for (const std::string& path : files) SHERD_RETURN_IF_ERROR(look.LookAt(root, path));
  return look.Check(patterns);
}

}  // namespace

absl::Status InspectTexts(const v1::DataSpec& data, int64_t seq_len, int64_t vocab,
                          const std::string& data_root) {
  const std::string tokenizer = data.tokenizer().empty() ? "bytes" : data.tokenizer();
  const absl::StatusOr<TextCodec> codec = TextCodec::Load(tokenizer, data_root);
  if (!codec.ok()) return InField("data.tokenizer", codec.status());
  if (!codec->is_bytes() && codec->vocab() > vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.tokenizer: ", tokenizer, " has ids up to ", codec->vocab() - 1,
                     ", but model.vocab is ", vocab, "; it must be at least ", codec->vocab()));
  }
  if (HoldsTokens(data)) return absl::OkStatus();
  for (const std::vector<std::string>& entries : TrainSources(data)) {
    SHERD_RETURN_IF_ERROR(
        InField("data.train",
                LookAtList(data, entries, seq_len, data.validation_split(), *codec, data_root)));
  }
  if (data.eval().empty()) return absl::OkStatus();
  return InField("data.eval", LookAtList(data, {data.eval().begin(), data.eval().end()}, seq_len, 0,
                                         *codec, data_root));
}

}  // namespace sherd
