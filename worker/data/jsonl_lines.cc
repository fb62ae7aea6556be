#include "worker/data/jsonl_lines.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/json_text.h"

namespace sherd {
namespace {

constexpr int64_t kReadBytes = 64 << 10;
// A line must fit into memory.
constexpr int64_t kLongestLine = 64 << 20;

}  // namespace

absl::StatusOr<bool> JsonlLines::NextLine(absl::string_view& line) {
  if (next_ >= end_) return false;
  line_start_ = next_;
  size_t searched = 0;
  while (true) {
    const auto start = static_cast<size_t>(line_start_ - buffer_at_);
    const size_t newline = buffer_.find('\n', start + searched);
    const int64_t buffer_end = buffer_at_ + static_cast<int64_t>(buffer_.size());
    const bool whole = newline != std::string::npos || buffer_end >= end_;
    searched = (newline == std::string::npos ? buffer_.size() : newline) - start;
    if (static_cast<int64_t>(searched) > kLongestLine) {
      return absl::InvalidArgumentError(absl::StrCat(file_.name(), ": byte ", line_start_,
                                                     ": the line is longer than ", kLongestLine,
                                                     " bytes"));
    }
    if (whole) {
      line = absl::string_view(buffer_).substr(start, searched);
      next_ = line_start_ + static_cast<int64_t>(searched) + 1;
      return true;
    }
    buffer_.erase(0, start);
    buffer_at_ = line_start_;
    // A long line is not searched and moved once for every little piece of it.
    const int64_t part =
        std::min(end_ - buffer_end, std::max(kReadBytes, static_cast<int64_t>(searched)));
    buffer_.resize(searched + static_cast<size_t>(part));
    SHERD_RETURN_IF_ERROR(file_.Read(buffer_end, part, buffer_.data() + searched));
  }
}

absl::StatusOr<bool> JsonlLines::Next(std::string& text) {
  static constexpr absl::string_view kText[] = {"text"};
  return NextOf(kText, absl::MakeSpan(&text, 1));
}

absl::StatusOr<bool> JsonlLines::NextOf(absl::Span<const absl::string_view> keys,
                                        absl::Span<std::string> texts) {
  absl::string_view line;
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const bool found, NextLine(line));
    if (!found) return false;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    JsonTextError error;
    if (ReadJsonTexts(line, keys, texts, error)) return true;
    return absl::InvalidArgumentError(
        absl::StrCat(file_.name(), ": byte ", line_start_ + error.byte, ": ", error.reason));
  }
}

}  // namespace sherd
