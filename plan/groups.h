#pragma once

#include <vector>

#include "sherd/v1/layout.pb.h"

namespace sherd {

// A world of tensor × data ranks: tensor-parallel groups are adjacent ranks, data-parallel groups
// hold equal tensor positions.
struct Groups {
  std::vector<std::vector<int>> tensor;
  std::vector<std::vector<int>> data;
};

// `world` must be a positive multiple of `tensor_degree` >= 1.
Groups BuildGroups(int world, int tensor_degree);

// The groups that contain `rank`, tensor first, as the coordinator sends them.
std::vector<v1::ProcessGroup> GroupsOf(const Groups& groups, int rank);

}  // namespace sherd
