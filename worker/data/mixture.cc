#include "worker/data/mixture.h"

#include <cstddef>
#include <numeric>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/splitmix.h"

namespace sherd {
namespace {

constexpr int64_t kMostSources = 10'000;

absl::Status CheckSources(const std::vector<MixedSource>& sources) {
  if (sources.empty() || static_cast<int64_t>(sources.size()) > kMostSources) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mixture has 1 to ", kMostSources, " sources, not ", sources.size()));
  }
  for (size_t s = 0; s < sources.size(); ++s) {
    if (sources[s].windows >= 1 && sources[s].weight >= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("source ", s, " of the mixture has ",
                                                   sources[s].windows, " windows and a weight of ",
                                                   sources[s].weight, "; both must be at least 1"));
  }
  return absl::OkStatus();
}

// 0 when it is too long.
int64_t PeriodOf(const std::vector<MixedSource>& sources, int64_t divisor) {
  int64_t period = 0;
  for (const MixedSource& source : sources) {
    if (source.weight / divisor > Mixture::kLongestPeriod - period) return 0;
    period += source.weight / divisor;
  }
  return period;
}

uint64_t SeedOf(uint64_t seed, size_t source) {
  return source == 0 ? seed : SplitMix(seed + static_cast<uint64_t>(source) * kSplitMixGamma);
}

// A sample of a source within the period, from the place on from which it may stand.
struct Due {
  int64_t from;
  int64_t before;
  size_t source;
};

Due DueOf(int64_t rank, int64_t weight, int64_t period, size_t source) {
  return {rank * period / weight, ((rank + 1) * period + weight - 1) / weight, source};
}

struct LaterStart {
  bool operator()(const Due& a, const Due& b) const {
    return std::tie(a.from, a.source) > std::tie(b.from, b.source);
  }
};

struct LaterEnd {
  bool operator()(const Due& a, const Due& b) const {
    return std::tie(a.before, a.source) > std::tie(b.before, b.source);
  }
};

}  // namespace

absl::StatusOr<Mixture> Mixture::Make(const std::vector<MixedSource>& sources, uint64_t seed) {
  if (absl::Status valid = CheckSources(sources); !valid.ok()) return valid;
  int64_t divisor = 0;
  for (const MixedSource& source : sources) divisor = std::gcd(divisor, source.weight);
  const int64_t period = PeriodOf(sources, divisor);
  if (period == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights of the mixture repeat after more than ", Mixture::kLongestPeriod,
                     " samples; give smaller numbers, as in 7, 2 and 1"));
  }
  Mixture mixture;
  std::priority_queue<Due, std::vector<Due>, LaterStart> waiting;
  for (size_t s = 0; s < sources.size(); ++s) {
    mixture.orders_.emplace_back(sources[s].windows, SeedOf(seed, s));
    mixture.weights_.push_back(sources[s].weight / divisor);
    waiting.push(DueOf(0, mixture.weights_[s], period, s));
  }
  std::priority_queue<Due, std::vector<Due>, LaterEnd> ready;
  std::vector<int32_t> ranks(sources.size(), 0);
  while (mixture.period() < period) {
    const int64_t place = mixture.period();
    for (; !waiting.empty() && waiting.top().from <= place; waiting.pop()) {
      ready.push(waiting.top());
    }
    SHERD_CHECK(!ready.empty() && ready.top().before > place);
    const size_t source = ready.top().source;
    ready.pop();
    mixture.places_.push_back({static_cast<int32_t>(source), ranks[source]++});
    if (ranks[source] < mixture.weights_[source]) {
      waiting.push(DueOf(ranks[source], mixture.weights_[source], period, source));
    }
  }
  return mixture;
}

MixedWindow Mixture::Window(int64_t index) const {
  SHERD_CHECK(index >= 0);
  const Place place = places_[static_cast<size_t>(index % period())];
  const auto source = static_cast<size_t>(place.source);
  return {place.source, orders_[source].Window(index / period() * weights_[source] + place.rank)};
}

}  // namespace sherd
