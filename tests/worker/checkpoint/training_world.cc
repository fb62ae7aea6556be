#include "tests/worker/checkpoint/training_world.h"

#include <utility>

#include "common/status_macros.h"
#include "plan/gradient_shares.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// The range `owned` of a unit, which may end in padding.
std::vector<float> Cut(std::vector<float> flat, const ElementRange& owned, float padding) {
  if (static_cast<int64_t>(flat.size()) < owned.end) {
    flat.resize(static_cast<size_t>(owned.end), padding);
  }
  return {flat.begin() + owned.begin, flat.begin() + owned.end};
}

}  // namespace

v1::JobSpec SmallJob(v1::Architecture arch, bool tied) {
  v1::JobSpec job;
  job.set_name("small");
  v1::ModelSpec& model = *job.mutable_model();
  model.set_arch(arch);
  model.set_layers(1);
  model.set_hidden(8);
  model.set_heads(4);
  model.set_kv_heads(arch == v1::ARCHITECTURE_LLAMA ? 1 : 4);
  model.set_ffn(6);
  model.set_vocab(11);
  model.set_context(3);
  model.set_tie_embeddings(tied);
  job.mutable_data()->add_train("corpus.txt");
  job.mutable_train()->set_steps(1000);
  job.mutable_train()->set_seed(7);
  job.mutable_train()->set_global_batch(12);
  job.mutable_train()->set_micro_batch(1);
  return NormalizeJobSpec(job);
}

TrainingWorld::TrainingWorld(v1::JobSpec job, const WorldLayout& layout, const Tensors& tensors,
                             float padding) {
  job.mutable_parallel()->set_strategy(layout.strategy);
  job.mutable_parallel()->set_tensor(layout.tensor);
  job.mutable_parallel()->set_shard_group(layout.shard_group);
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    RankState& state = ranks_.emplace_back();
    state.plan = BuildRankPlan(job, rank, layout.ranks());
    for (size_t u = 0; u < state.plan.inventory.units.size(); ++u) {
      const Unit& unit = state.plan.inventory.units[u];
      const ElementRange owned = state.plan.Owned(static_cast<int>(u));
      const auto cut = [&](const char* prefix) {
        return Cut(FlatBuffer(unit, tensors, padding, prefix), owned, padding);
      };
      state.units.push_back({cut(""), cut("optimizer.m/"), cut("optimizer.v/")});
    }
  }
}

std::vector<TensorRange> TrainingWorld::Ranges(int rank) const {
  const RankState& state = ranks_[static_cast<size_t>(rank)];
  const RankPlan& plan = state.plan;
  std::vector<TensorRange> ranges;
  // Copies of shards are written once, by those who count them.
  if (plan.data_rank >= plan.layout.degree) return ranges;
  for (size_t u = 0; u < state.units.size(); ++u) {
    const int64_t first = plan.Owned(static_cast<int>(u)).begin;
    const Unit& unit = plan.inventory.units[u];
    for (const ElementRange& part :
         FirstHeld(unit, plan.layout.units[u].Filled(plan.ShardIndex()), plan.part().place.index)) {
      const int64_t at = part.begin - first;
      AppendState(unit, part,
                  {state.units[u].master.data() + at, state.units[u].m.data() + at,
                   state.units[u].v.data() + at},
                  ranges);
    }
  }
  return ranges;
}

std::vector<TensorTarget> TrainingWorld::Targets(int rank) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  std::vector<TensorTarget> targets;
  for (size_t u = 0; u < state.units.size(); ++u) {
    UnitState& unit = state.units[u];
    AppendTargets(state.plan.inventory.units[u], state.plan.Owned(static_cast<int>(u)),
                  {unit.master.data(), unit.m.data(), unit.v.data()}, targets);
  }
  return targets;
}

std::vector<float> TrainingWorld::Values(int rank) const {
  std::vector<float> values;
  for (const UnitState& unit : ranks_[static_cast<size_t>(rank)].units) {
    for (const std::vector<float>* part : {&unit.master, &unit.m, &unit.v}) {
      values.insert(values.end(), part->begin(), part->end());
    }
  }
  return values;
}

CheckpointInfo TrainingInfoOf(const v1::JobSpec& job, int64_t step, int64_t epoch,
                              const std::string& lineage) {
  CheckpointInfo info{"small-1", step, epoch, ShapeOf(job.model()), "bytes"};
  TrainingInfo& training = info.training.emplace();
  training.lineage = lineage;
  training.train = job.train();
  training.corpus_tokens = 4321;
  training.tokens = step * 36;
  training.loss = 1.0 / 3;
  training.skipped_windows = 2;
  return info;
}

absl::Status SaveTraining(FileSystem& files, const std::string& root, const CheckpointInfo& info,
                          const TrainingWorld& world) {
  for (int rank = 0; rank < world.ranks(); ++rank) {
    SHERD_RETURN_IF_ERROR(WriteSave(files, root, info, rank, world.ranks(), world.Ranges(rank)));
  }
  return PublishSave(files, root, info, world.ranks(), TrainingTensorsOf(world.plan(0).inventory))
      .status();
}

absl::StatusOr<Tensors> LoadTraining(const FoundCheckpoint& checkpoint) {
  Tensors tensors;
  std::vector<TensorTarget> targets;
  for (const TensorDescription& tensor :
       TrainingTensorsOf(BuildInventory(checkpoint.manifest.info.model))) {
    std::vector<float>& values = tensors[tensor.name];
    values.assign(static_cast<size_t>(tensor.elements), -1.0f);
    const int64_t columns = tensor.shape.size() < 2 ? 1 : tensor.shape.back();
    targets.push_back({tensor.name, tensor.shape, {0, columns}, 0, tensor.elements, values.data()});
  }
  SHERD_RETURN_IF_ERROR(LoadTargets(checkpoint.path, checkpoint.manifest, targets).status());
  return tensors;
}

}  // namespace sherd
