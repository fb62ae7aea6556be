#pragma once

#include <cstdint>

#include "plan/strategy.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// How M = global_batch / micro_batch micro-batches of a step fall on D data-parallel ranks.
struct MicroBatches {
  int64_t count = 0;   // M
  int64_t rounds = 0;  // ceil(M / D)
  int degree = 0;      // D
  MicroBatchOrder order = MicroBatchOrder::kRoundRobin;

  // The global index of the micro-batch that `rank` computes in `round`; -1 when it has none.
  int64_t Index(int rank, int64_t round) const;
  // Ranks [0, n) that have a micro-batch in `round`.
  int ContributorsInRound(int64_t round) const;
  // Ranks [0, n) that have a micro-batch in the step.
  int ContributorsInStep() const;
};

MicroBatches SplitMicroBatches(const v1::TrainSpec& train, int degree, MicroBatchOrder order);

// Learning rate of `step`, which counts from 1: linear warm-up to lr over `warmup` steps, then the
// schedule.
double LearningRate(const v1::TrainSpec& train, int64_t step);

}  // namespace sherd
