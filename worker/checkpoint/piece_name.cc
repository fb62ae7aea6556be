#include "worker/checkpoint/piece_name.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sherd {
namespace {

std::string Bounds(const ElementRange& range) { return absl::StrCat(range.begin, ":", range.end); }

// The range of "[`prefix`begin:end]" at the end of `text`, which it then removes from there.
std::optional<ElementRange> ConsumeRange(absl::string_view prefix, absl::string_view& text) {
  const size_t open = text.rfind('[');
  if (open == absl::string_view::npos || text.back() != ']') return std::nullopt;
  absl::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (!absl::ConsumePrefix(&inside, prefix)) return std::nullopt;
  const size_t colon = inside.find(':');
  ElementRange range;
  // Spelt as FormatPieceName does: no sign, space or leading zero.
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(inside.substr(0, colon), &range.begin) ||
      !absl::SimpleAtoi(inside.substr(colon + 1), &range.end) || Bounds(range) != inside) {
    return std::nullopt;
  }
  text = text.substr(0, open);
  return range;
}

}  // namespace

int64_t ColumnsOf(const std::vector<int64_t>& shape) { return shape.size() < 2 ? 1 : shape.back(); }

std::string FormatPieceName(const PieceName& name) {
  return absl::StrCat(name.tensor,
                      name.columns ? absl::StrCat("[:,", Bounds(*name.columns), "]") : "",
                      name.elements ? absl::StrCat("[", Bounds(*name.elements), "]") : "");
}

PieceName ParsePieceName(absl::string_view entry) {
  PieceName name;
  name.elements = ConsumeRange("", entry);
  name.columns = ConsumeRange(":,", entry);
  name.tensor = std::string(entry);
  return name;
}

}  // namespace sherd
