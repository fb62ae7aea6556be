#pragma once

#include <string>
#include <vector>

#include "plan/ledger.h"
#include "tests/worker/checkpoint/whole_tensors.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/training_state.h"

namespace sherd {

// How a world lays its state out: `data` × `tensor` ranks.
struct WorldLayout {
  v1::Strategy strategy = v1::STRATEGY_ZERO3;
  int data = 1;
  int tensor = 1;
  int shard_group = 0;
  int ranks() const { return data * tensor; }
};

// A model small enough for thousands of checkpoints, whose vocabulary no degree divides.
v1::JobSpec SmallJob(v1::Architecture arch, bool tied);

// What the world's ranks keep, one beside the other.
class TrainingWorld {
 public:
  // Of the tensors of TrainingTensorsOf; padding has that value.
  TrainingWorld(v1::JobSpec job, const WorldLayout& layout, const Tensors& tensors, float padding);

  const RankPlan& plan(int rank) const { return ranks_[static_cast<size_t>(rank)].plan; }
  int ranks() const { return static_cast<int>(ranks_.size()); }
  // What the rank writes, and all that it must be given.
  std::vector<TensorRange> Ranges(int rank) const;
  std::vector<TensorTarget> Targets(int rank);
  // All buffers of the rank, one behind the other.
  std::vector<float> Values(int rank) const;

 private:
  struct UnitState {
    std::vector<float> master, m, v;
  };
  struct RankState {
    RankPlan plan;
    std::vector<UnitState> units;
  };
  std::vector<RankState> ranks_;
};

CheckpointInfo TrainingInfoOf(const v1::JobSpec& job, int64_t step, int64_t epoch = 1,
                              const std::string& lineage = "first");

// All that a world's ranks do to save; the first error.
absl::Status SaveTraining(FileSystem& files, const std::string& root, const CheckpointInfo& info,
                          const TrainingWorld& world);

// All tensors of a checkpoint, verified piece by piece as a lone rank loads them.
absl::StatusOr<Tensors> LoadTraining(const FoundCheckpoint& checkpoint);

}  // namespace sherd
