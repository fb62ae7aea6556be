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
int ShardsOf(const v1::ParallelSpec& parallel, int world) {
  const StrategyRow* row = FindStrategy(parallel);
  SHERD_CHECK(row != nullptr);
  if (row->optimizer == Placement::kWhole) return 1;
  return ShardDegreeOf(*row, parallel, world / TensorDegreeOf(parallel));
}

using VersionKey = std::tuple<int64_t, int, int64_t>;  // epoch, world, step

}  // namespace

Version VersionOf(const v1::Holding& holding) {
  return {holding.epoch(), holding.world(), holding.step()};
}

int PartsOf(const v1::ParallelSpec& parallel, int world) {
  return ShardsOf(parallel, world) * TensorDegreeOf(parallel);
}

int PartOf(const v1::ParallelSpec& parallel, int world, int rank) {
  const int tensor = TensorDegreeOf(parallel);
  return rank / tensor % ShardsOf(parallel, world) * tensor + rank % tensor;
}

int PartsOf(const v1::JobSpec& spec, int world) { return PartsOf(spec.parallel(), world); }

int PartOf(const v1::JobSpec& spec, int world, int rank) {
  return PartOf(spec.parallel(), world, rank);
}

std::optional<Version> ChooseVersion(const v1::JobSpec& spec, int64_t restored,
                                     absl::Span<const Holder> holders) {
  return ChooseVersion([&spec](int64_t) { return &spec.parallel(); }, restored, holders);
}

std::optional<Version> ChooseVersion(LayoutOfEpoch layouts, int64_t restored,
                                     absl::Span<const Holder> holders) {
  std::map<VersionKey, std::map<int, std::set<std::string>>> versions;
  for (const Holder& holder : holders) {
    for (const v1::Holding& held : holder.holdings) {
      const int world = held.world();
      const v1::ParallelSpec* layout = layouts(held.epoch());
      // No rank of the job can have said it.
      if (layout == nullptr || world < 1) continue;
      if (world % WorldGranuleOf(*layout) != 0 || held.owner() < 0 || held.owner() >= world)
        continue;
      versions[{held.epoch(), world, held.step()}][PartOf(*layout, world, held.owner())].insert(
          holder.process);
    }
  }
  // Whether it is of the present, copies of the rarest part, step, epoch.
  using Merit = std::tuple<bool, size_t, int64_t, int64_t>;
  std::optional<Version> chosen;
  Merit best;
  for (const auto& [key, parts] : versions) {
    const auto& [epoch, world, step] = key;
    if (static_cast<int>(parts.size()) != PartsOf(*layouts(epoch), world)) continue;
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
  return SourceParts(spec.parallel(), spec, from, to, rank);
}

std::vector<int> SourceParts(const v1::ParallelSpec& held, const v1::JobSpec& spec, int from,
                             int to, int rank) {
  const int tensor = TensorDegreeOf(spec.parallel());
  SHERD_CHECK(TensorDegreeOf(held) == tensor);
  const int place = rank % tensor;
  const int old_shards = ShardsOf(held, from);
  const int new_shards = ShardsOf(spec.parallel(), to);
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
      const ElementRange owned = old_layout.units[unit].Filled(owner);
      const bool overlaps = std::max(owned.begin, wanted.begin) < std::min(owned.end, wanted.end);
      if (overlaps) parts.insert(owner * tensor + place);
    }
  }
  return {parts.begin(), parts.end()};
}

}  // namespace sherd
