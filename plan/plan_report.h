#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/theory.h"
#include "plan/timeline.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// A strategy with the settings that make it another one.
struct StrategyChoice {
  v1::Strategy strategy = v1::STRATEGY_UNSPECIFIED;
  v1::GradientReduction zero1_gradients = v1::GRADIENT_REDUCTION_REDUCE_SCATTER;
  bool reshard_after_forward = true;
};

// "zero1 all_reduce", "zero3 kept": the strategy and what of its settings is not the default.
std::string NameOf(const StrategyChoice& choice);
// Every choice that this build executes without a shard group, the one that shards least first.
absl::Span<const StrategyChoice> StrategyChoices();
inline constexpr StrategyChoice kHybridChoice = {v1::STRATEGY_HYBRID};
// The shard group of hybrid that stands for all in a comparison: the largest proper divisor of the
// data-parallel degree; 1 where there is none, which shards nothing.
int64_t ComparedShardGroup(int64_t degree);
StrategyChoice ChoiceOf(const v1::ParallelSpec& parallel);
void Choose(const StrategyChoice& choice, v1::ParallelSpec& parallel);

// What a rank's memory is held against; bytes.
struct MemoryLimits {
  // Of the device that one rank has to itself.
  std::optional<int64_t> device = std::nullopt;
  // Of a host whose memory `workers_per_host` ranks share.
  std::optional<int64_t> host = std::nullopt;
  int64_t workers_per_host = 1;
};

struct MemoryCheck {
  std::string limit;  // "device" or "host"
  int64_t capacity = 0;
  int64_t needed = 0;
  int64_t spare() const { return capacity - needed; }
};

struct WireUse {
  std::string collective;
  int64_t bytes = 0;
};

// What one strategy costs, predicted. Nothing stands for what cannot be known: a parameter count
// alone has no activations, messages or step time.
struct PlanReport {
  StrategyChoice choice;
  int64_t workers = 0;
  // Tensor-parallel degree; the workers are so many times the data-parallel degree.
  int64_t tensor = 1;
  int64_t shard_group = 0;
  // Of the whole model.
  int64_t parameters = 0;
  // Of rank 0, of which no rank holds more; without padding.
  StateBytes state;
  // Model state of all ranks beyond a single copy.
  int64_t redundant_bytes = 0;
  std::optional<int64_t> gathered_bytes;
  // In the order in which they are shown; the total apart.
  std::vector<WireUse> wire;
  int64_t wire_total = 0;
  // All that rank 0 will hold.
  std::optional<int64_t> peak_bytes;
  std::optional<StepTimes> times;
  // All communication of a step, hidden or not.
  std::optional<double> communication_seconds;
  std::vector<MemoryCheck> checks;
  // Whether all checks hold; nothing without limits.
  std::optional<bool> fits;
  // Of a job: the ledgers of rank 0 and, when it differs, of the last rank; or that of the rank
  // that was asked about.
  std::vector<v1::RankLedger> ranks;
  // With parallel.offload: optimizer, the same ranks' where devices have memory of their own.
  std::vector<v1::RankLedger> on_devices;

  int64_t data_degree() const { return workers / tensor; }

  // What a limit is held against: the peak, or else what is known of it.
  int64_t NeededBytes() const;
  // The tightest limit's; negative when it does not fit. Needs a limit.
  int64_t SpareBytes() const;
};

// `spec` is normalised and valid. No rank holds more than rank 0: shards are filled from the front,
// as large as the last, padded one, and micro-batches are dealt from rank 0 on. Nor does any send
// more but for the shares of gradients in its tensor-parallel group, which lie in some shards only.
// `workers` is a multiple of WorldGranuleOf. `threads`: compute threads of a worker. `rank`: whose
// ledger to show; nothing: as PlanReport::ranks says.
PlanReport ReportOnJob(const v1::JobSpec& spec, int workers, const MemoryLimits& limits,
                       const CostModel& cost, int threads = 1,
                       std::optional<int> rank = std::nullopt);

// From a parameter count alone. `bandwidth`: bytes a second that a rank sends, if it is known.
PlanReport ReportOnTheory(const TheoryQuestion& question, const MemoryLimits& limits,
                          std::optional<double> bandwidth);

struct Consumer {
  std::string pool;
  int64_t bytes = 0;
};
// The pools that hold most of what rank 0 needs, largest first.
std::vector<Consumer> LargestConsumers(const PlanReport& report, size_t most);

}  // namespace sherd
