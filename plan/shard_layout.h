#pragma once

#include <cstdint>
#include <vector>

#include "plan/element_range.h"
#include "plan/parameters.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// Shards start at multiples of this many elements, so that bf16 shards are cache-line aligned.
inline constexpr int64_t kShardAlignment = 32;

// How one unit's flat buffer is cut: `degree` equal shards, the last of them padded with zeros that
// belong to no parameter, enter no norm and are never saved.
struct UnitLayout {
  int64_t elements = 0;
  int64_t shard_elements = 0;
  int64_t padded_elements = 0;

  ElementRange Shard(int index) const {
    return {index * shard_elements, (index + 1) * shard_elements};
  }
  // The part of a shard that parameters fill.
  ElementRange Filled(int index) const;
};

UnitLayout LayoutUnit(int64_t elements, int degree, int64_t alignment = kShardAlignment);

// One layout a unit, in unit order.
struct ShardLayout {
  int degree = 1;
  std::vector<UnitLayout> units;
};

ShardLayout BuildShardLayout(const Inventory& inventory, int degree,
                             int64_t alignment = kShardAlignment);

// The layout of shard `index` as the coordinator sends it.
std::vector<v1::UnitShard> DescribeShards(const Inventory& inventory, const ShardLayout& layout,
                                          int index);

}  // namespace sherd
