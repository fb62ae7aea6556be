#pragma once

#include <cstdint>
#include <optional>

#include "plan/strategy.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Section 3's table as arithmetic: what a strategy costs a rank for so many parameters, whatever
// the model. One unit that is cut evenly, so neither padding nor what a real model saves (the
// embedding's backward needs no gather, the head's stays gathered) is in it; plan/ledger.h counts a
// real model. The figures are the largest rank's: a shard is ceil(N / K) parameters.
struct TheoryQuestion {
  StrategyRow strategy;
  bool reshard_after_forward = true;
  int64_t parameters = 0;  // N
  int degree = 1;          // D
  // Ranks that share one copy of what is sharded (K); divides the degree, and is the degree but for
  // hybrid.
  int shard_group = 1;
  int64_t rounds = 1;  // A: micro-batches a rank and step
  int64_t param_bytes = 2;
  int64_t grad_bytes = 2;
};

// No int64 overflows within these.
inline constexpr int64_t kMostTheoryParameters = 10'000'000'000'000;
inline constexpr int64_t kMostTheoryWorkers = 16384;
inline constexpr int64_t kMostTheoryRounds = 65536;

struct StateBytes {
  int64_t params = 0;
  int64_t grads = 0;
  int64_t optimizer = 0;
  int64_t total() const { return params + grads + optimizer; }
};

// Sent by one rank in one step.
struct WireBytes {
  int64_t all_gather = 0;
  int64_t reduce_scatter = 0;
  int64_t all_reduce = 0;
  int64_t total() const { return all_gather + reduce_scatter + all_reduce; }
};

StateBytes StateBytesOf(const TheoryQuestion& question);
WireBytes WireBytesOf(const TheoryQuestion& question);
// Model state of all ranks beyond a single copy.
int64_t RedundantBytes(const TheoryQuestion& question);
// Whole parameters that a rank holds beside its shards between forward and backward; nothing when
// that depends on the model's units.
std::optional<int64_t> GatheredBytes(const TheoryQuestion& question);

}  // namespace sherd
