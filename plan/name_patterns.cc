#include "plan/name_patterns.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace sherd {
namespace {

// Insertions, deletions and substitutions after which the pattern matches the name.
size_t PatternDistance(absl::string_view pattern, absl::string_view name) {
  std::vector<size_t> last(name.size() + 1), row(name.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (const char c : pattern) {
    const bool any = c == '*';
    row[0] = last[0] + (any ? 0 : 1);
    for (size_t j = 1; j <= name.size(); ++j) {
      row[j] =
          any ? std::min(last[j], row[j - 1])
              : std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (c == name[j - 1] ? 0 : 1)});
    }
    std::swap(last, row);
  }
  return last[name.size()];
}

}  // namespace

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  size_t p = 0;
  size_t n = 0;
  // Where the last star stands, and the name's part from which on what follows it is tried.
  size_t star = absl::string_view::npos;
  size_t tried = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++tried;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == absl::string_view::npos;
}

std::vector<std::string> NearestToPattern(absl::string_view pattern,
                                          const std::vector<std::string>& names, size_t most) {
  std::vector<std::pair<size_t, std::string>> by_distance;
  for (const std::string& name : names) {
    by_distance.emplace_back(PatternDistance(pattern, name), name);
  }
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (auto& [distance, name] : by_distance) {
    // What takes more changes than the nearest is a worse guess.
    if (nearest.size() == most || distance > by_distance.front().first) break;
    nearest.push_back(std::move(name));
  }
  return nearest;
}

}  // namespace sherd
