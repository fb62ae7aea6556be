#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/token_file.h"

namespace sherd {

// A long sequence of tokens on disk. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t tokens() const = 0;
  // Tokens [begin, begin + count), which must lie within [0, tokens()). kDataLoss, naming the file,
  // when one has become shorter since it was opened.
  virtual absl::Status Read(int64_t begin, int64_t count, int32_t* out) const = 0;
};

// Of which files a source is made.
struct TokenFiles {
  // "": anywhere.
  std::string root;
  // Paths, and patterns as in worker/data/path_patterns.h.
  std::vector<std::string> patterns;
  TokenFormat format = TokenFormat::kText;
  int64_t vocab = 0;
};

// The tokens of all files, one file after another, with nothing between them. Opens every file at
// once, so that one unlinked later can still be read. Errors of ExpandPatterns and OpenTokenFile;
// kInvalidArgument for an empty list. Read is kOutOfRange, naming the file, for a token that is not
// below `vocab`.
absl::StatusOr<std::unique_ptr<TokenSource>> OpenTokens(const TokenFiles& files);

}  // namespace sherd
