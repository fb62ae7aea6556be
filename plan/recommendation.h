#pragma once

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "plan/plan_report.h"

namespace sherd {

// Estimates that differ by less are taken to be equal.
inline constexpr double kSameSpeed = 0.03;

// Indices into the reports that were compared.
struct Recommendation {
  size_t chosen = 0;
  // Of those that fit; the chosen one is at most kSameSpeed slower.
  size_t fastest = 0;
  // The one that shards most: it leaves the least model state on a rank.
  size_t highest = 0;
  // The best of those that would have been as good or better but do not fit.
  std::optional<size_t> refused;
};

// The fastest that fits; among those within kSameSpeed of it the one that needs the least memory;
// among equals the one that shards least. Speed is the estimated step or, without estimates, the
// bytes sent. A report that says nothing about fitting counts as fitting. Nothing when none fits.
std::optional<Recommendation> Recommend(absl::Span<const PlanReport> reports);

}  // namespace sherd
