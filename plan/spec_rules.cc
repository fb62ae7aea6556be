#include "plan/spec_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sherd {

void SpecRules::Add(absl::string_view field, absl::string_view description) {
  v1::InvalidField& violation = *violations_.add_fields();
  violation.set_field(std::string(field));
  violation.set_description(std::string(description));
}

bool SpecRules::CheckRange(absl::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return true;
  Add(field, absl::StrCat(value, " is out of range; the nearest valid value is ",
                          std::clamp(value, least, most), " (", least, " to ", most, ")"));
  return false;
}

bool SpecRules::CheckGiven(absl::string_view field, int64_t value, int64_t most) {
  if (value != 0) return CheckRange(field, value, 1, most);
  Add(field, absl::StrCat("must be given: a number from 1 to ", most));
  return false;
}

bool SpecRules::CheckReal(absl::string_view field, double value, bool holds,
                          absl::string_view rule) {
  if (std::isfinite(value) && holds) return true;
  Add(field, absl::StrCat(value, " is not valid; it must be ", rule));
  return false;
}

bool HasControl(absl::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

std::string NearestText(const std::vector<int64_t>& values) {
  return absl::StrCat("; the nearest ", values.size() == 1 ? "is " : "are ",
                      absl::StrJoin(values, " and "));
}

std::string NearestThatDoText(const std::vector<int64_t>& values) {
  if (values.empty()) return "";
  return absl::StrCat(
      values.size() == 1 ? "; the nearest that does is " : "; the nearest that do are ",
      absl::StrJoin(values, " and "));
}

std::vector<int64_t> NearestMultiples(int64_t of, int64_t value, int64_t most) {
  std::vector<int64_t> nearest;
  const int64_t below = value / of * of;
  if (below > 0) nearest.push_back(below);
  if (below + of <= most) nearest.push_back(below + of);
  return nearest;
}

}  // namespace sherd
