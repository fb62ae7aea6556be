#include "client/quantities.h"

#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

struct ByteUnit {
  absl::string_view name;
  double bytes;
};

constexpr std::array<ByteUnit, 8> kByteUnits = {{{"KiB", 1024.0},
                                                 {"MiB", 1048576.0},
                                                 {"GiB", 1073741824.0},
                                                 {"TiB", 1099511627776.0},
                                                 {"kB", 1e3},
                                                 {"MB", 1e6},
                                                 {"GB", 1e9},
                                                 {"TB", 1e12}}};
constexpr double kMostBytes = 1152921504606846976.0;

absl::Status Wrong(absl::string_view flag, absl::string_view text, absl::string_view rule) {
  constexpr size_t kLongestShown = 40;
  const bool shown = text.size() <= kLongestShown && absl::c_all_of(text, absl::ascii_isprint);
  return absl::InvalidArgumentError(
      absl::StrCat(flag, shown ? absl::StrCat(" '", text, "'") : "", " must be ", rule));
}

// SimpleAtod takes "nan", hexadecimal numbers and surrounding spaces, which nobody means here.
std::optional<double> Number(absl::string_view text) {
  double value = 0;
  const bool plain = !text.empty() && absl::c_all_of(text, [](char c) {
    return absl::ascii_isdigit(c) || absl::StrContains("+-.eE", absl::string_view(&c, 1));
  });
  if (!plain || !absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

template <typename T>
absl::Status OutOfRange(absl::string_view flag, absl::string_view text, bool below, T least,
                        T most) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", text, " is out of range; the nearest valid value is ",
                   below ? least : most, " (", least, " to ", most, ")"));
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(absl::string_view flag, absl::string_view text, int64_t least,
                                   int64_t most) {
  const std::optional<double> value = Number(text);
  if (!value || std::floor(*value) != *value) {
    return Wrong(flag, text, absl::StrCat("a whole number, as in ", most >= 1e9 ? "7e9" : "4"));
  }
  const bool below = *value < static_cast<double>(least);
  if (below || *value > static_cast<double>(most)) {
    return OutOfRange(flag, text, below, least, most);
  }
  return static_cast<int64_t>(*value);
}

absl::StatusOr<double> ParseReal(absl::string_view flag, absl::string_view text, double least,
                                 double most) {
  const std::optional<double> value = Number(text);
  if (!value) return Wrong(flag, text, "a finite number, as in 1e12");
  const bool below = *value < least;
  if (below || *value > most) return OutOfRange(flag, text, below, least, most);
  return *value;
}

absl::StatusOr<int64_t> ParseByteSize(absl::string_view flag, absl::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  const absl::string_view unit = end == absl::string_view::npos ? "" : text.substr(end);
  const auto found = absl::c_find_if(kByteUnits, [&](const ByteUnit& u) { return u.name == unit; });
  const std::optional<double> value = Number(text.substr(0, end));
  if (found == kByteUnits.end() || !value) {
    return Wrong(flag, text, "a size with its unit, as in 80GiB, 512GiB or 50GB");
  }
  const double bytes = std::floor(*value * found->bytes);
  if (bytes < 1 || bytes > kMostBytes) {
    return Wrong(flag, text, "at least one byte and at most 1048576TiB");
  }
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<bool> ParseFlag(absl::string_view flag, absl::string_view text) {
  if (text != "true" && text != "false") return Wrong(flag, text, "true or false");
  return text == "true";
}

}  // namespace sherd
