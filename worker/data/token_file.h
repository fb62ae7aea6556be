#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/id_type.h"

namespace sherd {

// How files hold tokens; docs/data-formats.md describes each.
enum class TokenFormat { kText, kJsonl, kTokensU16, kLlmc, kMegatron };

// As a job file names it.
absl::string_view NameOf(TokenFormat format);
// Of all formats, in that order.
std::vector<absl::string_view> TokenFormatNames();
// False, and `format` as it was, for a name of none.
bool TokenFormatFromName(absl::string_view name, TokenFormat& format);

// One file of tokens (Megatron: a pair of files), open for reading. Thread-safe.
class TokenFile {
 public:
  virtual ~TokenFile() = default;
  // As the user spelt it.
  virtual const std::string& name() const = 0;
  // At least 1.
  virtual int64_t tokens() const = 0;
  // −1 where the format knows none.
  virtual int64_t documents() const { return -1; }
  // Of all its files.
  virtual int64_t bytes() const = 0;
  virtual IdType type() const = 0;
  // Tokens [begin, begin + count), which must lie within [0, tokens()). kDataLoss when the file has
  // become shorter since it was opened; kInvalidArgument for what is no token. Either names the
  // file and the byte.
  virtual absl::Status Read(int64_t begin, int64_t count, int32_t* out) const = 0;
};

// Opens `path` below `root` ("": anywhere), for Megatron's format with or without its ending. Looks
// at headers and indices, at tokens only in lines of JSON, of which it reads all. Errors of
// OpenBelow; kInvalidArgument, naming file, byte and reason, for a file that is not of the format,
// is cut off, contradicts itself, or holds no token.
absl::StatusOr<std::unique_ptr<TokenFile>> OpenTokenFile(const std::string& root,
                                                         const std::string& path,
                                                         TokenFormat format);

// That all `count` ids, which are those from token `begin` on, are below `vocab`: kOutOfRange,
// naming file, position and id, for the first that is not.
absl::Status CheckIds(const TokenFile& file, int64_t begin, const int32_t* ids, int64_t count,
                      int64_t vocab);

}  // namespace sherd
