#include "tests/simulation/lineage.h"

#include "absl/strings/str_cat.h"

namespace sherd::simulation {

bool IsPrefix(const Lineage& shorter, const Lineage& longer) {
  return longer.compare(0, shorter.size(), shorter) == 0;
}

std::string Described(const Lineage& lineage) {
  std::string text = absl::StrCat("step ", lineage.size(), " (epochs");
  for (const char epoch : lineage) absl::StrAppend(&text, " ", static_cast<int>(epoch));
  return text + ")";
}

}  // namespace sherd::simulation
