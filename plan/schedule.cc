#include "plan/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/check.h"

namespace sherd {

int64_t MicroBatches::Index(int rank, int64_t round) const {
  const int64_t index =
      order == MicroBatchOrder::kConsecutive ? rank * rounds + round : round * degree + rank;
  return index < count ? index : -1;
}

int MicroBatches::ContributorsInRound(int64_t round) const {
  int contributors = 0;
  while (contributors < degree && Index(contributors, round) >= 0) ++contributors;
  return contributors;
}

int MicroBatches::ContributorsInStep() const {
  int contributors = 0;
  while (contributors < degree && Index(contributors, 0) >= 0) ++contributors;
  return contributors;
}

MicroBatches SplitMicroBatches(const v1::TrainSpec& train, int degree, MicroBatchOrder order) {
  SHERD_CHECK(degree >= 1 && train.micro_batch() >= 1);
  MicroBatches split;
  split.count = train.global_batch() / train.micro_batch();
  split.rounds = (split.count + degree - 1) / degree;
  split.degree = degree;
  split.order = order;
  return split;
}

double LearningRate(const v1::TrainSpec& train, int64_t step) {
  const double peak = train.optimizer().lr();
  const v1::ScheduleSpec& schedule = train.schedule();
  if (step <= schedule.warmup()) {
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup());
  }
  if (schedule.kind() == v1::SCHEDULE_KIND_CONSTANT) return peak;
  // Half a cosine from the peak after warm-up to min_lr at the last step (Loshchilov & Hutter
  // 2017).
  const double span = static_cast<double>(std::max<int64_t>(1, train.steps() - schedule.warmup()));
  const double progress = std::min(1.0, static_cast<double>(step - schedule.warmup()) / span);
  const double factor = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return schedule.min_lr() + (peak - schedule.min_lr()) * factor;
}

}  // namespace sherd
