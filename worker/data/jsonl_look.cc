#include "worker/data/jsonl_look.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/jsonl_lines.h"

namespace sherd {
namespace {

constexpr int64_t kEndBytes = 1 << 20;

// Reads lines until one ends at or behind `stop`.
absl::Status ReadLines(const MappedFile& file, JsonlLines& lines, int64_t stop, int64_t vocab,
                       JsonlLook& look) {
  std::string text;
  while (lines.next_start() < stop) {
    SHERD_ASSIGN_OR_RETURN(const bool found, lines.Next(text));
    if (!found) break;
    look.tokens += static_cast<int64_t>(text.size());
    const auto large = std::find_if(text.begin(), text.end(), [&](char byte) {
      return static_cast<unsigned char>(byte) >= vocab;
    });
    if (large != text.end()) {
      return absl::OutOfRangeError(
          absl::StrCat(file.name(), ": byte ", lines.line_start(), ": the text holds the byte ",
                       int{static_cast<unsigned char>(*large)}, ", but model.vocab is ", vocab));
    }
  }
  return absl::OkStatus();
}

// Where the first line starts that begins in the last MiB; the end when there is none.
absl::StatusOr<int64_t> StartOfLastLines(const MappedFile& file) {
  std::string end(static_cast<size_t>(kEndBytes), '\0');
  const int64_t begin = file.bytes() - kEndBytes;
  SHERD_RETURN_IF_ERROR(file.Read(begin, kEndBytes, end.data()));
  const size_t newline = end.find('\n');
  return newline == std::string::npos ? file.bytes() : begin + static_cast<int64_t>(newline) + 1;
}

}  // namespace

absl::StatusOr<JsonlLook> LookAtJsonl(const MappedFile& file, int64_t vocab) {
  JsonlLook look;
  look.whole = file.bytes() <= 2 * kEndBytes;
  JsonlLines first(file, 0, file.bytes());
  SHERD_RETURN_IF_ERROR(ReadLines(file, first, look.whole ? file.bytes() : kEndBytes, vocab, look));
  if (look.whole) return look;
  SHERD_ASSIGN_OR_RETURN(const int64_t start, StartOfLastLines(file));
  JsonlLines last(file, start, file.bytes());
  SHERD_RETURN_IF_ERROR(ReadLines(file, last, file.bytes(), vocab, look));
  return look;
}

}  // namespace sherd
