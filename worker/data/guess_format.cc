#include "worker/data/guess_format.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "worker/data/open_formats.h"

namespace sherd {

absl::StatusOr<TokenFormat> GuessFormat(const std::string& root, const std::string& path) {
  if (OpenBelow(root, MegatronPrefix(path) + ".idx").ok()) return TokenFormat::kMegatron;
  SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow(root, path));
  std::string start(static_cast<size_t>(std::min(file.bytes(), int64_t{4096})), '\0');
  SHERD_RETURN_IF_ERROR(file.Read(0, static_cast<int64_t>(start.size()), start.data()));
  // 20240520 and 20240801.
  for (const absl::string_view magic : {"\x88\xd8\x34\x01", "\xa1\xd9\x34\x01"}) {
    if (absl::StartsWith(start, magic)) return TokenFormat::kLlmc;
  }
  if (absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".ndjson")) {
    return TokenFormat::kJsonl;
  }
  const bool binary = absl::EndsWith(path, ".bin") || absl::StrContains(start, '\0');
  return binary ? TokenFormat::kTokensU16 : TokenFormat::kText;
}

}  // namespace sherd
