#include "worker/train/straggler_watch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace sherd {
namespace {

constexpr double kSlower = 1.5;
constexpr double kBlinkSeconds = 2e-3;
constexpr int kPatienceSteps = 20;

constexpr int kWarmUpSteps = 20;
constexpr double kWeight = 0.05;  // of a step in the running means
constexpr double kSpike = 10;

}  // namespace

StragglerWatch::StragglerWatch(std::vector<int64_t> micro_batches)
    : micro_batches_(std::move(micro_batches)), slow_steps_(micro_batches_.size(), 0) {}

std::optional<double> StragglerWatch::MedianWithout(int rank, absl::Span<const double> seconds) {
  std::vector<double> others;
  for (size_t other = 0; other < seconds.size(); ++other) {
    if (static_cast<int>(other) != rank && seconds[other] >= 0) others.push_back(seconds[other]);
  }
  if (others.empty()) return std::nullopt;
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

std::vector<Straggler> StragglerWatch::Add(absl::Span<const double> busy_seconds) {
  std::vector<double> seconds;  // for a micro-batch; negative: none to look at
  for (size_t rank = 0; rank < micro_batches_.size(); ++rank) {
    seconds.push_back(micro_batches_[rank] == 0
                          ? -1
                          : busy_seconds[rank] / static_cast<double>(micro_batches_[rank]));
  }
  std::vector<Straggler> found;
  for (size_t at = 0; at < seconds.size(); ++at) {
    const int rank = static_cast<int>(at);
    const std::optional<double> median = MedianWithout(rank, seconds);
    const bool slow =
        median.has_value() && seconds[at] > std::max(kSlower * *median, *median + kBlinkSeconds);
    int& steps = slow_steps_[at];
    if (!slow) {
      steps = 0;
    } else if (steps >= 0 && ++steps == kPatienceSteps) {
      steps = -1;
      found.push_back({rank, seconds[at], *median});
    }
  }
  return found;
}

bool LossWatch::Add(double loss) {
  const double above = loss - mean_;
  const bool spike = steps_ >= kWarmUpSteps && above > kSpike * distance_;
  if (steps_ == 0) mean_ = loss;
  // A spike must not become what is usual.
  if (!spike) {
    distance_ += (steps_ < kWarmUpSteps ? 1.0 / (steps_ + 1) : kWeight) *
                 (std::abs(loss - mean_) - distance_);
    mean_ += (steps_ < kWarmUpSteps ? 1.0 / (steps_ + 1) : kWeight) * (loss - mean_);
  }
  ++steps_;
  return spike;
}

}  // namespace sherd
