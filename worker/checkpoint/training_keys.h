#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// The settings of training that a checkpoint names, as the job file spells them.

struct WholeKey {
  const char* name;
  uint64_t (*get)(const v1::TrainSpec& train);
  void (*set)(v1::TrainSpec& train, uint64_t value);
  // Which samples a step trains on depends on it.
  bool orders_samples = false;
  // Checkpoints of older versions do not name it: it is 0 then.
  bool added_later = false;
};
absl::Span<const WholeKey> WholeKeys();

struct RealKey {
  const char* name;
  double (*get)(const v1::TrainSpec& train);
  void (*set)(v1::TrainSpec& train, double value);
  bool added_later = false;
};
absl::Span<const RealKey> RealKeys();

inline constexpr char kScheduleKindKey[] = "train.schedule.kind";
// Lists, which checkpoints without any do not name.
inline constexpr char kGroupsKey[] = "train.optimizer.groups";
inline constexpr char kFreezeKey[] = "train.freeze";

}  // namespace sherd
