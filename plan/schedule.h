#pragma once

#include <algorithm>
#include <cstdint>

#include "sherd/v1/job.pb.h"

namespace sherd {

// How M = global_batch / micro_batch micro-batches of a step fall on D data-parallel ranks, which
// make up `replicas` replicas of K = D / replicas adjacent ranks. A replica takes consecutive ones,
// P = ceil(M / replicas) of them, K a round: with one replica round a takes the next D, with D
// replicas a rank takes its own.
struct MicroBatches {
  int64_t count = 0;   // M
  int64_t rounds = 0;  // ceil(P / K)
  int degree = 1;      // D
  int replicas = 1;

  // The global index of the micro-batch that `rank` computes in `round`; -1 when it has none.
  int64_t Index(int rank, int64_t round) const;
  // Where micro-batch `index` is computed.
  struct Place {
    int rank = 0;
    int64_t round = 0;
  };
  Place Of(int64_t index) const;

  int replica_size() const { return degree / replicas; }  // K
  int replica_of(int rank) const { return rank / replica_size(); }
  // P, but at least 1.
  int64_t per_replica() const { return std::max<int64_t>(1, (count + replicas - 1) / replicas); }
  // Micro-batches of one replica: P, but for the last ones.
  int64_t CountOf(int replica) const;
  // Ranks [0, n) of a replica that have a micro-batch in `round`.
  int ContributorsInRound(int replica, int64_t round) const;
  // Replicas [0, n) that have a micro-batch in the step.
  int ContributingReplicas() const;
  // Whether summing replica by replica, then the replicas, is the one binary tree over all
  // micro-batches, so that the sums have the same bits as on one rank: when every replica but the
  // last sums a whole subtree.
  bool SumsInTreeOrder() const;
};

// `degree` is a multiple of `replicas`.
MicroBatches SplitMicroBatches(int64_t count, int degree, int replicas);

// Learning rate of `step`, which counts from 1: linear warm-up to lr over `warmup` steps; then it
// stays, or falls to min_lr at the last step, by half a cosine, by a line, or by a line over the
// last `decay` steps.
double LearningRate(const v1::TrainSpec& train, int64_t step);

}  // namespace sherd
