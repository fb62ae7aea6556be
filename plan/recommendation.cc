#include "plan/recommendation.h"

namespace sherd {
namespace {

double CostOf(const PlanReport& report) {
  return report.times ? report.times->step : static_cast<double>(report.wire_total);
}

bool Refused(const PlanReport& report) { return report.fits.has_value() && !*report.fits; }

}  // namespace

std::optional<Recommendation> Recommend(absl::Span<const PlanReport> reports) {
  std::optional<size_t> fastest;
  size_t highest = 0;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].state.total() < reports[highest].state.total()) highest = i;
    if (Refused(reports[i])) continue;
    if (!fastest || CostOf(reports[i]) < CostOf(reports[*fastest])) fastest = i;
  }
  if (!fastest) return std::nullopt;
  Recommendation best{*fastest, *fastest, highest, std::nullopt};
  const double bound = CostOf(reports[*fastest]) * (1 + kSameSpeed);
  bool any = false;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (Refused(reports[i]) || CostOf(reports[i]) > bound) continue;
    if (!any || reports[i].NeededBytes() < reports[best.chosen].NeededBytes()) best.chosen = i;
    any = true;
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    if (!Refused(reports[i]) || CostOf(reports[i]) > CostOf(reports[best.chosen])) continue;
    if (!best.refused || CostOf(reports[i]) <= CostOf(reports[*best.refused])) best.refused = i;
  }
  return best;
}

}  // namespace sherd
