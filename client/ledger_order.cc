#include "client/ledger_order.h"

#include <algorithm>
#include <set>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sherd {
namespace {

constexpr absl::string_view kPools[] = {"params",       "grads",    "optimizer",   "padding",
                                        "accumulators", "gathered", "activations", "comm",
                                        "staging",      "scratch",  "replicas"};
constexpr absl::string_view kCollectives[] = {"all_gather", "reduce_scatter", "all_reduce",
                                              "broadcast"};
constexpr absl::string_view kGroups[] = {"tensor", "kv_copy", "data", "shard", "replica"};

std::vector<std::string> InOrder(std::set<std::string> names,
                                 absl::Span<const absl::string_view> first,
                                 absl::string_view last) {
  std::vector<std::string> ordered;
  const auto take = [&](absl::string_view name) {
    if (names.erase(std::string(name)) != 0) ordered.emplace_back(name);
  };
  const bool has_last = names.erase(std::string(last)) != 0;
  for (const absl::string_view name : first) take(name);
  ordered.insert(ordered.end(), names.begin(), names.end());
  if (has_last) ordered.emplace_back(last);
  return ordered;
}

}  // namespace

std::vector<std::string> PoolsOf(const std::vector<v1::RankLedger>& ledgers) {
  std::set<std::string> names;
  for (const v1::RankLedger& ledger : ledgers) {
    for (const auto& [name, line] : ledger.memory()) names.insert(name);
  }
  return InOrder(std::move(names), kPools, "peak");
}

std::vector<std::string> HostPoolsOf(const std::vector<v1::RankLedger>& ledgers) {
  std::set<std::string> names;
  for (const v1::RankLedger& ledger : ledgers) {
    for (const auto& [name, line] : ledger.host_memory()) names.insert(name);
  }
  return InOrder(std::move(names), kPools, "peak");
}

std::vector<std::string> CollectivesOf(const std::vector<v1::RankLedger>& ledgers) {
  std::set<std::string> names;
  for (const v1::RankLedger& ledger : ledgers) {
    for (const auto& [name, line] : ledger.wire()) names.insert(name);
  }
  return InOrder(std::move(names), kCollectives, "total");
}

std::vector<std::string> GroupsIn(const std::vector<v1::RankLedger>& ledgers) {
  std::set<std::string> names;
  for (const v1::RankLedger& ledger : ledgers) {
    for (const auto& [name, line] : ledger.wire_by_group()) names.insert(name);
  }
  return InOrder(std::move(names), kGroups, "total");
}

const char* OptimizerLocation(const v1::RankLedger& ledger) {
  return ledger.offload() == v1::OFFLOAD_OPTIMIZER ? "host" : "device";
}

}  // namespace sherd
