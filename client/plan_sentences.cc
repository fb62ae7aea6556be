#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/render_plan.h"
#include "client/render_text.h"

namespace sherd {
namespace {

std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "sends a third less than zero3".
std::string SendsLess(const PlanReport& chosen, const PlanReport& other) {
  const std::string name = RowName(other);
  const double part =
      1.0 - static_cast<double>(chosen.wire_total) / static_cast<double>(other.wire_total);
  const std::pair<double, const char*> words[] = {{1.0 / 4, "a quarter less than "},
                                                  {1.0 / 3, "a third less than "},
                                                  {1.0 / 2, "half as much as "},
                                                  {2.0 / 3, "two thirds less than "}};
  for (const auto& [value, word] : words) {
    if (std::abs(part - value) < 0.01) return absl::StrCat("sends ", word, name);
  }
  return absl::StrFormat("sends %.0f %% less than %s", 100 * part, name);
}

// How the chosen one stands to the others in speed.
std::string SpeedText(const std::vector<PlanReport>& reports, const Recommendation& best) {
  const PlanReport& chosen = reports[best.chosen];
  const PlanReport& fastest = reports[best.fastest];
  const bool is_fastest = best.chosen == best.fastest;
  if (!chosen.times) {
    return is_fastest
               ? "none that fits sends less"
               : absl::StrCat("it sends no more than ", RowName(fastest), " and needs less memory");
  }
  const std::string step =
      absl::StrCat("its step is estimated at ", SecondsText(chosen.times->step));
  if (is_fastest) return absl::StrCat(step, ", the shortest of those that fit");
  return absl::StrCat(step, ", about as short as ", RowName(fastest), "'s of ",
                      SecondsText(fastest.times->step), ", which needs ",
                      HumanBytes(fastest.NeededBytes() - chosen.NeededBytes()), " more memory");
}

}  // namespace

std::string ReasonText(const std::vector<PlanReport>& reports, const Recommendation& best) {
  const PlanReport& chosen = reports[best.chosen];
  const PlanReport& highest = reports[best.highest];
  const bool lower = chosen.state.total() > highest.state.total();
  std::vector<std::string> virtues;
  if (!chosen.checks.empty()) {
    virtues.push_back(absl::StrCat("fits with ", HumanBytes(chosen.SpareBytes()), " to spare"));
  }
  if (lower && chosen.wire_total < highest.wire_total) {
    virtues.push_back(SendsLess(chosen, highest));
  }
  std::vector<std::string> clauses;
  if (!virtues.empty()) clauses.push_back(absl::StrCat("it ", absl::StrJoin(virtues, " and ")));
  clauses.push_back(SpeedText(reports, best));
  if (best.refused) {
    const PlanReport& refused = reports[*best.refused];
    clauses.push_back(absl::StrCat(RowName(refused), " is ", HumanBytes(-refused.SpareBytes()),
                                   " short of memory"));
  }
  if (chosen.checks.empty()) clauses.emplace_back("no memory limit was given");
  return absl::StrCat(RowName(chosen), ": ", lower ? "not the highest stage: " : "",
                      absl::StrJoin(clauses, "; "));
}

std::string ShortfallText(const PlanReport& report) {
  std::vector<std::string> limits;
  for (const MemoryCheck& check : report.checks) {
    if (check.spare() >= 0) continue;
    limits.push_back(absl::StrCat(HumanBytes(check.needed), " of ", HumanBytes(check.capacity), " ",
                                  check.limit, " memory, ", HumanBytes(-check.spare()), " short"));
  }
  const std::string consumers =
      absl::StrJoin(LargestConsumers(report, 3), ", ", [](std::string* out, const Consumer& c) {
        absl::StrAppend(out, c.pool, " ", HumanBytes(c.bytes));
      });
  return absl::StrCat(RowName(report), " on ", Counted(report.workers, "worker"),
                      " does not fit: it needs ", absl::StrJoin(limits, " and "),
                      "; the largest of a rank: ", consumers);
}

}  // namespace sherd
