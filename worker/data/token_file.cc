#include "worker/data/token_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/open_formats.h"

namespace sherd {
namespace {

constexpr std::pair<TokenFormat, absl::string_view> kFormats[] = {
    {TokenFormat::kText, "text"},
    {TokenFormat::kJsonl, "jsonl"},
    {TokenFormat::kTokensU16, "tokens_u16"},
    {TokenFormat::kLlmc, "llmc"},
    {TokenFormat::kMegatron, "megatron"}};

absl::StatusOr<std::unique_ptr<TokenFile>> OpenSingle(MappedFile file, TokenFormat format) {
  if (file.bytes() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), " is empty; name a file that holds ",
                     format == TokenFormat::kText ? "text" : "tokens"));
  }
  switch (format) {
    case TokenFormat::kText:
      return OpenTextFile(std::move(file));
    case TokenFormat::kJsonl:
      return OpenJsonlFile(std::move(file));
    case TokenFormat::kTokensU16:
      return OpenTokensU16File(std::move(file));
    case TokenFormat::kLlmc:
      return OpenLlmcFile(std::move(file));
    case TokenFormat::kMegatron:
      break;
  }
  return absl::InternalError("a format of several files");
}

}  // namespace

absl::string_view NameOf(TokenFormat format) {
  for (const auto& [value, name] : kFormats) {
    if (value == format) return name;
  }
  return "";
}

std::vector<absl::string_view> TokenFormatNames() {
  std::vector<absl::string_view> names;
  for (const auto& [value, name] : kFormats) names.push_back(name);
  return names;
}

bool TokenFormatFromName(absl::string_view name, TokenFormat& format) {
  for (const auto& [value, known] : kFormats) {
    if (known != name) continue;
    format = value;
    return true;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<TokenFile>> OpenTokenFile(const std::string& root,
                                                         const std::string& path,
                                                         TokenFormat format) {
  if (format == TokenFormat::kMegatron) return OpenMegatronFile(root, path);
  SHERD_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(root, path));
  return OpenSingle(std::move(file), format);
}

absl::Status CheckIds(const TokenFile& file, int64_t begin, const int32_t* ids, int64_t count,
                      int64_t vocab) {
  const int32_t* const end = ids + count;
  const int32_t* const large = std::find_if(ids, end, [&](int32_t id) { return id >= vocab; });
  if (large == end) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(file.name(), ": token ", begin + (large - ids),
                                            " has the id ", *large, ", but model.vocab is ", vocab,
                                            "; it must be above every id"));
}

}  // namespace sherd
