#include "plan/world_layout.h"

#include <algorithm>

#include "common/check.h"
#include "plan/model_shape.h"
#include "plan/tensor_part.h"

namespace sherd {

int TensorDegreeOf(const v1::ParallelSpec& parallel) {
  return static_cast<int>(std::max<int64_t>(1, parallel.tensor()));
}

int64_t WorldGranuleOf(const v1::ParallelSpec& parallel) {
  return TensorDegreeOf(parallel) * std::max<int64_t>(1, parallel.shard_group());
}

WorldLayout::WorldLayout(const v1::JobSpec& spec, int world)
    : world_(world), parallel_(spec.parallel()), strategy_(FindStrategy(spec.parallel())) {
  const int tensor = TensorDegreeOf(parallel_);
  const ModelShape shape = ShapeOf(spec.model());
  for (int index = 0; index < tensor; ++index) {
    inventories_.push_back(BuildInventory(shape, TensorPlaceOf(parallel_, index)));
  }
  groups_ = BuildGroups(world, tensor, static_cast<int>(parallel_.shard_group()),
                        inventories_.front().part.kv_copies);
}

std::vector<v1::UnitShard> WorldLayout::ShardsOf(int rank) const {
  SHERD_CHECK(rank >= 0 && rank < world_);
  if (strategy_ == nullptr) return {};
  const int tensor = groups_.tensor_degree;
  return DescribeOwned(inventories_[static_cast<size_t>(rank % tensor)], *strategy_, parallel_,
                       world_ / tensor, rank / tensor);
}

}  // namespace sherd
