#include "plan/probe_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "plan/strategy.h"

namespace sherd {
namespace {

constexpr size_t kMostGroupSizes = 6;
constexpr double kBytesOfAdamW = 28;
constexpr double kBytesOfFold = 6;
// Of the gradients that a probe sums, which are bf16.
constexpr double kGradientBytes = 2;
// What is measured within the noise of a clock.
constexpr double kLeastSeconds = 1e-9;

bool IsFigure(double value) { return std::isfinite(value) && value > 0; }

// A size of message in one group.
using Place = std::tuple<std::string, int64_t, int64_t, int64_t>;

// Seconds of a message and bytes a second.
struct Line {
  double seconds_per_message = 0;
  double bandwidth = 0;
};

// Of the smallest and the largest all-gather that were timed in groups of this size and stride.
std::optional<Line> LineOf(const v1::TrialReport& probe, int64_t size, int64_t stride) {
  const v1::CollectiveFigure* small = nullptr;
  const v1::CollectiveFigure* large = nullptr;
  for (const v1::CollectiveFigure& figure : probe.collectives()) {
    if (figure.op() != "all_gather" || figure.group_size() != size) continue;
    if (figure.stride() != stride) continue;
    if (small == nullptr || figure.bytes() < small->bytes()) small = &figure;
    if (large == nullptr || figure.bytes() > large->bytes()) large = &figure;
  }
  if (large == nullptr || large->bytes() <= 0 || size < 2) return std::nullopt;
  const double more = static_cast<double>(large->bytes() - small->bytes());
  const double longer = large->seconds() - small->seconds();
  Line line;
  line.bandwidth = more > 0 && longer > kLeastSeconds
                       ? more / longer
                       : static_cast<double>(large->bytes()) / large->seconds();
  const double fixed = small->seconds() - static_cast<double>(small->bytes()) / line.bandwidth;
  line.seconds_per_message = std::max(0.0, fixed) / static_cast<double>(size - 1);
  return line;
}

// The timed groups most like those of `size` members `stride` apart.
std::optional<Line> NearestLine(const v1::TrialReport& probe, int64_t size, int64_t stride) {
  const v1::CollectiveFigure* best = nullptr;
  const auto distance = [&](const v1::CollectiveFigure& figure) {
    return std::tuple(std::abs(figure.group_size() - size), std::abs(figure.stride() - stride));
  };
  for (const v1::CollectiveFigure& figure : probe.collectives()) {
    if (figure.op() != "all_gather") continue;
    if (best == nullptr || distance(figure) < distance(*best)) best = &figure;
  }
  if (best == nullptr) return std::nullopt;
  return LineOf(probe, best->group_size(), best->stride());
}

// Of the largest reduce-scatter in groups of one size and stride: what adding up takes beside the
// bytes, an element.
std::optional<double> FoldSeconds(const v1::TrialReport& probe) {
  const v1::CollectiveFigure* largest = nullptr;
  for (const v1::CollectiveFigure& figure : probe.collectives()) {
    if (figure.op() != "reduce_scatter") continue;
    if (largest == nullptr || figure.bytes() > largest->bytes()) largest = &figure;
  }
  if (largest == nullptr || largest->bytes() <= 0) return std::nullopt;
  const std::optional<Line> line = LineOf(probe, largest->group_size(), largest->stride());
  if (!line) return std::nullopt;
  const double bytes = static_cast<double>(largest->bytes());
  const double sent = static_cast<double>(largest->group_size() - 1) * line->seconds_per_message +
                      bytes / line->bandwidth;
  if (largest->seconds() <= sent) return std::nullopt;
  return (largest->seconds() - sent) / (bytes / kGradientBytes);
}

}  // namespace

std::vector<int64_t> ProbeGroupSizes(int ranks) {
  std::vector<int64_t> sizes;
  for (int64_t size = 2; size < ranks && sizes.size() + 1 < kMostGroupSizes; ++size) {
    if (ranks % size != 0) continue;
    if (sizes.empty() || size >= 2 * sizes.back()) sizes.push_back(size);
  }
  if (ranks > 1) sizes.push_back(ranks);
  return sizes;
}

std::vector<int64_t> ProbeStrides(int64_t size, int ranks) {
  const int64_t apart = ranks / size;
  return apart > 1 ? std::vector<int64_t>{1, apart} : std::vector<int64_t>{1};
}

v1::TrialReport SlowestOf(absl::Span<const v1::TrialReport> reports) {
  v1::TrialReport slowest;
  std::map<Place, double> seconds;
  const auto keep_least = [](double value, double kept) {
    if (!IsFigure(value)) return kept;
    return kept > 0 ? std::min(kept, value) : value;
  };
  for (const v1::TrialReport& report : reports) {
    slowest.set_number(std::max(slowest.number(), report.number()));
    slowest.set_matmul_flops_per_second(
        keep_least(report.matmul_flops_per_second(), slowest.matmul_flops_per_second()));
    slowest.set_copy_bytes_per_second(
        keep_least(report.copy_bytes_per_second(), slowest.copy_bytes_per_second()));
    if (IsFigure(report.step_seconds())) {
      slowest.set_step_seconds(std::max(slowest.step_seconds(), report.step_seconds()));
    }
    slowest.set_peak_bytes(std::max(slowest.peak_bytes(), report.peak_bytes()));
    for (const v1::CollectiveFigure& figure : report.collectives()) {
      if (!IsFigure(figure.seconds()) || figure.group_size() < 2) continue;
      double& known = seconds[{figure.op(), figure.group_size(), figure.stride(), figure.bytes()}];
      known = std::max(known, figure.seconds());
    }
  }
  for (const auto& [place, longest] : seconds) {
    v1::CollectiveFigure& figure = *slowest.add_collectives();
    const auto& [op, size, stride, bytes] = place;
    figure.set_op(op);
    figure.set_group_size(size);
    figure.set_stride(stride);
    figure.set_bytes(bytes);
    figure.set_seconds(longest);
  }
  return slowest;
}

CostModel CostFromProbe(const v1::TrialReport& probe, const CostModel& profile,
                        const v1::ParallelSpec& parallel, int ranks) {
  CostModel cost = profile;
  if (IsFigure(probe.matmul_flops_per_second())) cost.flops = probe.matmul_flops_per_second();
  if (IsFigure(probe.copy_bytes_per_second())) {
    const double moved = 2 * probe.copy_bytes_per_second();
    cost.optimizer_seconds = kBytesOfAdamW / moved;
    cost.fold_seconds = kBytesOfFold / moved;
  }
  const int64_t tensor = std::max<int64_t>(1, parallel.tensor());
  const int64_t degree = ranks / tensor;
  const StrategyRow* row = FindStrategy(parallel);
  const int64_t sharers =
      row == nullptr ? degree : ShardDegreeOf(*row, parallel, static_cast<int>(degree));
  if (const std::optional<Line> line = NearestLine(probe, sharers, tensor)) {
    cost.bandwidth = line->bandwidth;
    cost.seconds_per_message = line->seconds_per_message;
    cost.tensor_bandwidth = line->bandwidth;
  }
  if (const std::optional<Line> line = NearestLine(probe, tensor, 1); line && tensor > 1) {
    cost.tensor_bandwidth = line->bandwidth;
  }
  if (const std::optional<double> fold = FoldSeconds(probe)) cost.fold_seconds = *fold;
  return cost;
}

}  // namespace sherd
