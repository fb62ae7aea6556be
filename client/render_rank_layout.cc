#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render_plan.h"
#include "client/render_text.h"

namespace sherd {
namespace {

// Of more ranks only the first and the last are told.
constexpr size_t kRanksToList = 16;
constexpr size_t kFirstRanks = 3;

std::string RanksText(const v1::ProcessGroup& group) {
  const std::vector<int> ranks(group.ranks().begin(), group.ranks().end());
  if (ranks.size() <= kRanksToList) return absl::StrJoin(ranks, ", ");
  const std::vector<int> first(ranks.begin(), ranks.begin() + kFirstRanks);
  return absl::StrCat(absl::StrJoin(first, ", "), ", … ", ranks.back(), " (", ranks.size(),
                      " ranks)");
}

}  // namespace

std::string RankLayoutText(const WorldLayout& layout, int rank) {
  std::vector<std::vector<std::string>> groups = {{"group", "ranks"}};
  for (const v1::ProcessGroup& group : layout.GroupsOf(rank)) {
    groups.push_back({std::string(NameOf(group.kind())), RanksText(group)});
  }
  std::vector<std::vector<std::string>> shards = {{"unit", "begin", "end", "elements", "padded"}};
  for (const v1::UnitShard& shard : layout.ShardsOf(rank)) {
    shards.push_back({shard.unit(), WithThousands(shard.begin()), WithThousands(shard.end()),
                      WithThousands(shard.unit_elements()),
                      WithThousands(shard.padded_elements())});
  }
  return absl::StrCat("\nGroups of rank ", rank, "\n", Table(groups, {false, false}),
                      "\nElements that rank ", rank, " updates, of each unit as it holds it\n",
                      Table(shards, {false, true, true, true, true}));
}

Json RankLayoutJson(const WorldLayout& layout, int rank) {
  Json groups = Json::array();
  for (const v1::ProcessGroup& group : layout.GroupsOf(rank)) {
    groups.push_back({{"kind", std::string(NameOf(group.kind()))},
                      {"ranks", std::vector<int>(group.ranks().begin(), group.ranks().end())}});
  }
  Json shards = Json::array();
  for (const v1::UnitShard& shard : layout.ShardsOf(rank)) {
    shards.push_back({{"unit", shard.unit()},
                      {"begin", shard.begin()},
                      {"end", shard.end()},
                      {"unit_elements", shard.unit_elements()},
                      {"padded_elements", shard.padded_elements()}});
  }
  return {{"rank", rank}, {"groups", std::move(groups)}, {"shards", std::move(shards)}};
}

}  // namespace sherd
