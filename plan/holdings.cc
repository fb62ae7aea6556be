#include "plan/holdings.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "common/check.h"
#include "plan/model_shape.h"
#include "plan/parameters.h"
#include "plan/shard_layout.h"
#include "plan/strategy.h"
#include "plan/tensor_part.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

// Over how many ranks of a data-parallel group the state is cut.
int ShardsOf(const v1::JobSpec& spec, int world) {
  const StrategyRow* row = FindStrategy(spec.parallel());
  SHERD_CHECK(row != nullptr);
  if (row->optimizer == Placement::kWhole) return 1;
  return ShardDegreeOf(*row, spec.parallel(), world / TensorDegreeOf(spec.parallel()));
}

using VersionKey = std::tuple<int64_t, int, int64_t>;  // epoch, world, step

}  // namespace

Version VersionOf(const v1::Holding& holding) {
  return {holding.epoch(), holding.world(), holding.step()};
}

int PartsOf(const v1::JobSpec& spec, int world) {
  return ShardsOf(spec, world) * TensorDegreeOf(spec.parallel());
}

int PartOf(const v1::JobSpec& spec, int world, int rank) {
  const int tensor = TensorDegreeOf(spec.parallel());
  return rank / tensor % ShardsOf(spec, world) * tensor + rank % tensor;
}

std::optional<Version> ChooseVersion(const v1::JobSpec& spec, int64_t restored,
                                     absl::Span<const Holder> holders) {
  const int granule = static_cast<int>(WorldGranuleOf(spec.parallel()));
  std::map<VersionKey, std::map<int, std::set<std::string>>> versions;
  for (const Holder& holder : holders) {
    for (const v1::Holding& held : holder.holdings) {
      const int world = held.world();
      // No rank of the job can have said it.
      if (world < 1 || world % granule != 0 || held.owner() < 0 || held.owner() >= world) continue;
      versions[{held.epoch(), world, held.step()}][PartOf(spec, world, held.owner())].insert(
          holder.process);
    }
  }
  // Whether it is of the present, copies of the rarest part, step, epoch.
  using Merit = std::tuple<bool, size_t, int64_t, int64_t>;
  std::optional<Version> chosen;
  Merit best;
  for (const auto& [key, parts] : versions) {
    const auto& [epoch, world, step] = key;
    if (static_cast<int>(parts.size()) != PartsOf(spec, world)) continue;
    size_t copies = SIZE_MAX;
    for (const auto& [part, processes] : parts) copies = std::min(copies, processes.size());
    const Merit merit{epoch >= restored, copies, step, epoch};
    if (chosen.has_value() && merit <= best) continue;
    best = merit;
    chosen = Version{epoch, world, step};
  }
  return chosen;
}

int64_t RestoredEpoch(int64_t logged, const std::map<int64_t, int64_t>& starts,
                      absl::Span<const Holder> holders) {
  int64_t restored = logged;
  for (const Holder& holder : holders) {
    for (const v1::Holding& held : holder.holdings) {
      const auto start = starts.find(held.epoch());
      if (start != starts.end() && held.step() > start->second) {
        restored = std::max<int64_t>(restored, held.epoch());
      }
    }
  }
  return restored;
}

std::vector<int> SourceParts(const v1::JobSpec& spec, int from, int to, int rank) {
  const int tensor = TensorDegreeOf(spec.parallel());
  const int place = rank % tensor;
  const int old_shards = ShardsOf(spec, from);
  const int new_shards = ShardsOf(spec, to);
  if (old_shards == new_shards) return {PartOf(spec, to, rank)};
  const Inventory inventory =
      BuildInventory(ShapeOf(spec.model()), TensorPlaceOf(spec.parallel(), place));
  const ShardLayout old_layout = BuildShardLayout(inventory, old_shards);
  const ShardLayout new_layout = BuildShardLayout(inventory, new_shards);
  const int shard = PartOf(spec, to, rank) / tensor;
  std::set<int> parts;
  for (size_t unit = 0; unit < old_layout.units.size(); ++unit) {
    const ElementRange wanted = new_layout.units[unit].Filled(shard);
    for (int owner = 0; owner < old_shards; ++owner) {
      const ElementRange held = old_layout.units[unit].Filled(owner);
      const bool overlaps = std::max(held.begin, wanted.begin) < std::min(held.end, wanted.end);
      if (overlaps) parts.insert(owner * tensor + place);
    }
  }
  return {parts.begin(), parts.end()};
}

}  // namespace sherd
