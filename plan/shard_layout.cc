#include "plan/shard_layout.h"

#include <algorithm>

#include "common/check.h"

namespace sherd {

ElementRange UnitLayout::Filled(int index) const {
  const ElementRange shard = Shard(index);
  return {std::min(shard.begin, elements), std::min(shard.end, elements)};
}

UnitLayout LayoutUnit(int64_t elements, int degree, int64_t alignment) {
  SHERD_CHECK(elements >= 0 && degree >= 1 && alignment >= 1);
  const int64_t even = (elements + degree - 1) / degree;
  UnitLayout layout;
  layout.elements = elements;
  layout.shard_elements = (even + alignment - 1) / alignment * alignment;
  layout.padded_elements = layout.shard_elements * degree;
  return layout;
}

ShardLayout BuildShardLayout(const Inventory& inventory, int degree, int64_t alignment) {
  ShardLayout layout;
  layout.degree = degree;
  for (const Unit& unit : inventory.units) {
    layout.units.push_back(LayoutUnit(unit.elements, degree, alignment));
  }
  return layout;
}

std::vector<v1::UnitShard> DescribeShards(const Inventory& inventory, const ShardLayout& layout,
                                          int index) {
  SHERD_CHECK(inventory.units.size() == layout.units.size());
  std::vector<v1::UnitShard> shards;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    const ElementRange range = layout.units[unit].Shard(index);
    v1::UnitShard shard;
    shard.set_unit(inventory.units[unit].name);
    shard.set_unit_elements(layout.units[unit].elements);
    shard.set_padded_elements(layout.units[unit].padded_elements);
    shard.set_begin(range.begin);
    shard.set_end(range.end);
    shards.push_back(shard);
  }
  return shards;
}

}  // namespace sherd
