#include "client/yaml_values.h"

#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

absl::Status Wrong(const YamlNode& node, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(node), " must be ", rule));
}

bool IsPlain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

// A whole number that has more digits than int64 can hold.
bool IsBeyondInt64(absl::string_view text) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && absl::c_all_of(text, absl::ascii_isdigit);
}

}  // namespace

std::string Quoted(const YamlNode& node) {
  constexpr size_t kLongest = 60;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "an empty value";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMapping:
      return "a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  if (node.text.size() <= kLongest) return absl::StrCat("'", node.text, "'");
  size_t end = kLongest;
  // Not inside a UTF-8 sequence.
  while (end > 0 && (static_cast<unsigned char>(node.text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat("'", node.text.substr(0, end), "…'");
}

absl::Status ReadWhole(const YamlNode& node, int64_t& value) {
  if (IsPlain(node) && IsBeyondInt64(node.text)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(node), " is out of range; whole numbers go from ",
        std::numeric_limits<int64_t>::min(), " to ", std::numeric_limits<int64_t>::max()));
  }
  if (!IsPlain(node) || !absl::SimpleAtoi(node.text, &value)) {
    return Wrong(node, "a whole number, as in 32");
  }
  return absl::OkStatus();
}

absl::Status ReadReal(const YamlNode& node, double& value) {
  if (!IsPlain(node) || !absl::SimpleAtod(node.text, &value) || !std::isfinite(value)) {
    return Wrong(node, "a finite number, as in 3e-4");
  }
  return absl::OkStatus();
}

absl::Status ReadFlag(const YamlNode& node, bool& value) {
  if (!IsPlain(node) || (node.text != "true" && node.text != "false")) {
    return Wrong(node, "true or false");
  }
  value = node.text == "true";
  return absl::OkStatus();
}

absl::Status ReadText(const YamlNode& node, std::string& value) {
  if (node.kind != YamlNode::Kind::kScalar) return Wrong(node, "a text");
  value = node.text;
  return absl::OkStatus();
}

absl::Status ReadDurationMs(const YamlNode& node, int64_t& milliseconds) {
  absl::Duration duration;
  if (node.kind != YamlNode::Kind::kScalar || !absl::ParseDuration(node.text, &duration) ||
      duration < absl::Milliseconds(1) || duration == absl::InfiniteDuration() ||
      duration != absl::Trunc(duration, absl::Milliseconds(1))) {
    return Wrong(node, "a time with its unit, as in 3s or 500ms");
  }
  milliseconds = absl::ToInt64Milliseconds(duration);
  return absl::OkStatus();
}

absl::Status ReadTexts(const YamlNode& node, std::vector<std::string>& values) {
  if (node.kind != YamlNode::Kind::kSequence) return Wrong(node, "a list, as in [corpus.txt]");
  values.clear();
  for (const YamlNode& child : node.children) {
    SHERD_RETURN_IF_ERROR(ReadText(child, values.emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ReadReals(const YamlNode& node, std::vector<double>& values) {
  if (node.kind != YamlNode::Kind::kSequence) return Wrong(node, "a list, as in [0.9, 0.95]");
  values.clear();
  for (const YamlNode& child : node.children) {
    SHERD_RETURN_IF_ERROR(ReadReal(child, values.emplace_back()));
  }
  return absl::OkStatus();
}

}  // namespace sherd
