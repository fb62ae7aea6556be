#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/sequences.h"
#include "worker/dataset/text_codec.h"

namespace sherd {

// Lines of JSON with "prompt" and "completion", as tokens: a sequence each.

// What such a line becomes.
struct PromptLine {
  // What starts a text, the prompt, the completion, and the end token, unless the completion ends
  // with it. Prompt and completion are tokenized each by itself.
  std::vector<TokenId> tokens;
  // Of `tokens`, those before the completion.
  int64_t prompt = 0;
};
class PromptEncoder {
 public:
  static constexpr absl::string_view kKeys[] = {"prompt", "completion"};

  // `codec` must outlive this.
  explicit PromptEncoder(const TextCodec& codec);
  void Encode(absl::string_view prompt, absl::string_view completion, PromptLine& line);

 private:
  TextCodec::Writer writer_;
  const std::vector<TokenId> start_;
  const std::optional<TokenId> end_;
};

// How many tokens of a sequence of `prompt` and `length` − `prompt` tokens are predicted when the
// first seq_len + 1 are kept: those of the completion, but for the very first token of all.
int64_t PredictedTokens(int64_t prompt, int64_t length, int64_t seq_len);

struct PromptSources {
  // What the files and the tokenizer lie below; "": anywhere.
  std::string root;
  std::vector<std::string> files;
  // "bytes" or the path of a tokenizer.json.
  std::string tokenizer;
  // True: kAborted before long. May be null.
  std::function<bool()> stopped;
};

// Of a file in which there is no line: what each must be.
absl::Status NoPrompts(absl::string_view path);

// As FingerprintOf of worker/pack/pack.h.
absl::StatusOr<uint64_t> FingerprintOf(const PromptSources& sources);

// Tokenizes all lines into the file `path`, which appears whole or not at all. kInvalidArgument,
// naming file and byte, for a line without the two strings, and for files without any line; errors
// of opening and writing files.
absl::Status WritePromptFile(const PromptSources& sources, const std::string& path);

// The sequences of such a file of which a token is predicted. Those that are too long lose their
// end.
class PromptSequences final : public Sequences {
 public:
  // kInvalidArgument when no line has a completion that begins within seq_len + 1 tokens; kDataLoss
  // for a file that is damaged.
  static absl::StatusOr<std::unique_ptr<PromptSequences>> Open(const std::string& path,
                                                               int64_t seq_len, int64_t vocab);
  ~PromptSequences() override;

  int64_t seq_len() const override { return seq_len_; }
  int64_t count() const override { return static_cast<int64_t>(kept_.size()); }
  int64_t Targets(int64_t index) const override;
  absl::Status Fill(int64_t index, int32_t* inputs, int32_t* targets) const override;

  // Of the files; and how many of them are left out, since nothing of them is predicted.
  int64_t lines() const;
  int64_t skipped() const { return lines() - count(); }
  // Of all lines.
  int64_t tokens() const;

 private:
  struct File;
  PromptSequences(std::unique_ptr<File> file, int64_t seq_len, int64_t vocab);

  const std::unique_ptr<File> file_;
  const int64_t seq_len_;
  const int64_t vocab_;
  std::vector<int64_t> kept_;
};

}  // namespace sherd
