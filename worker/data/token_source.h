#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

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

// The bytes of text files, one after another: a token is a byte. Opens every file at once, so that
// one unlinked later can still be read. Errors as OpenBelow (worker/data/roots.h);
// kInvalidArgument for an empty file or list.
absl::StatusOr<std::unique_ptr<TokenSource>> OpenText(const std::string& root,
                                                      const std::vector<std::string>& paths);

}  // namespace sherd
