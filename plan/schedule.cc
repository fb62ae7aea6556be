#include "plan/schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "common/check.h"

namespace sherd {

int64_t MicroBatches::Index(int rank, int64_t round) const {
  const int replica = replica_of(rank);
  const int64_t local = round * replica_size() + rank % replica_size();
  return local < CountOf(replica) ? replica * per_replica() + local : -1;
}

MicroBatches::Place MicroBatches::Of(int64_t index) const {
  SHERD_CHECK(index >= 0 && index < count);
  const int64_t replica = index / per_replica();
  const int64_t local = index % per_replica();
  const int64_t size = replica_size();
  return {static_cast<int>(replica * size + local % size), local / size};
}

int64_t MicroBatches::CountOf(int replica) const {
  const int64_t before = std::min(count, replica * per_replica());
  return std::min(per_replica(), count - before);
}

int MicroBatches::ContributorsInRound(int replica, int64_t round) const {
  const int64_t size = replica_size();
  return static_cast<int>(std::clamp<int64_t>(CountOf(replica) - round * size, 0, size));
}

int MicroBatches::ContributingReplicas() const {
  return static_cast<int>((count + per_replica() - 1) / per_replica());
}

bool MicroBatches::SumsInTreeOrder() const {
  return ContributingReplicas() == 1 || std::has_single_bit(static_cast<uint64_t>(per_replica()));
}

MicroBatches SplitMicroBatches(int64_t count, int degree, int replicas) {
  SHERD_CHECK(count >= 0 && replicas >= 1 && degree % replicas == 0);
  MicroBatches split;
  split.count = count;
  split.degree = degree;
  split.replicas = replicas;
  const int64_t size = split.replica_size();
  split.rounds = (split.per_replica() + size - 1) / size;
  return split;
}

namespace {

// How far `step` is on the way from `first`, where the rate begins to fall, to the last step.
double Progress(const v1::TrainSpec& train, int64_t first, int64_t step) {
  const double span = static_cast<double>(std::max<int64_t>(1, train.steps() - first));
  return std::clamp(static_cast<double>(step - first) / span, 0.0, 1.0);
}

// After warm-up, what is left of the distance between the peak and min_lr.
double ShareOfPeak(const v1::TrainSpec& train, int64_t step) {
  const v1::ScheduleSpec& schedule = train.schedule();
  switch (schedule.kind()) {
    case v1::SCHEDULE_KIND_CONSTANT:
      return 1;
    case v1::SCHEDULE_KIND_LINEAR:
      return 1 - Progress(train, schedule.warmup(), step);
    case v1::SCHEDULE_KIND_WSD:
      // Hu et al. 2024: what comes before the decay does not depend on how long training goes on.
      return 1 - Progress(train, train.steps() - schedule.decay(), step);
    default:
      // Half a cosine (Loshchilov & Hutter 2017).
      return 0.5 * (1.0 + std::cos(std::numbers::pi * Progress(train, schedule.warmup(), step)));
  }
}

}  // namespace

double LearningRate(const v1::TrainSpec& train, int64_t step) {
  const double peak = train.optimizer().lr();
  const v1::ScheduleSpec& schedule = train.schedule();
  if (step <= schedule.warmup()) {
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup());
  }
  return schedule.min_lr() + (peak - schedule.min_lr()) * ShareOfPeak(train, step);
}

}  // namespace sherd
