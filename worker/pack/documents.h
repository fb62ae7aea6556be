#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/pack/piece_plan.h"
#include "worker/pack/source_file.h"
#include "worker/tokenizer/tokenizer.h"

namespace sherd {

// How files become documents, and documents tokens.
struct DocumentOptions {
  // Each line of a file is an object, whose member `field` is a document; else a file is one.
  bool jsonl = false;
  std::string field = "text";
  // What the tokenizer's post-processor puts around a text is put around each document.
  bool post_process = false;
  // After each document.
  std::optional<TokenId> end_token;
  EncodeOptions encode;
};

// What came out of a piece.
struct TokenizedPiece {
  std::vector<TokenId> tokens;
  int64_t documents = 0;
};

// Reads pieces and tokenizes them. For one thread at a time.
class DocumentTokenizer {
 public:
  // All must outlive this.
  DocumentTokenizer(const std::vector<SourceFile>& files, const Tokenizer& tokenizer,
                    const DocumentOptions& options)
      : files_(files),
        tokenizer_(tokenizer),
        options_(options),
        encoder_(tokenizer, options.encode) {}

  // The tokens of a piece; those of all pieces of a plan, one after the other, are those of the
  // files, whatever the pieces' size. Errors name the file and the byte: kInvalidArgument for what
  // is no JSON or lacks the field, or cannot be cut where it had to be; those of SourceFile::Read.
  absl::StatusOr<TokenizedPiece> Tokenize(const PlannedPiece& piece);

 private:
  // Where the planned end of a range lies really: the first place at or after it where the file
  // may be cut.
  absl::StatusOr<int64_t> Resolve(const SourceFile& file, int64_t planned) const;
  absl::Status TokenizeLines(const SourceFile& file, int64_t begin, const std::string& lines,
                             TokenizedPiece& piece);
  void Begin(TokenizedPiece& piece) const;
  void End(TokenizedPiece& piece) const;

  const std::vector<SourceFile>& files_;
  const Tokenizer& tokenizer_;
  const DocumentOptions& options_;
  Encoder encoder_;
};

}  // namespace sherd
