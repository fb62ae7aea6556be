#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ledger_order.h"
#include "client/render_plan.h"
#include "client/render_text.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using Rows = std::vector<std::vector<std::string>>;

bool IsTheory(const PlanReport& report) { return report.ranks.empty(); }

std::string Size(const PlanReport& report, int64_t bytes) {
  return IsTheory(report) ? DecimalBytes(bytes) : HumanBytes(bytes);
}

// Without the columns of which nothing is known.
Rows WithoutEmptyColumns(const Rows& rows) {
  Rows kept(rows.size());
  for (size_t c = 0; c < rows.front().size(); ++c) {
    const bool empty =
        std::all_of(rows.begin() + 1, rows.end(),
                    [&](const std::vector<std::string>& row) { return row[c] == "-"; });
    if (empty) continue;
    for (size_t r = 0; r < rows.size(); ++r) kept[r].push_back(rows[r][c]);
  }
  return kept;
}

// The first column is text, the others are numbers.
std::string NumbersTable(const Rows& rows) {
  std::vector<bool> right(rows.front().size(), true);
  right[0] = false;
  return Table(rows, right);
}

std::string Heading(const PlanReport& report, absl::string_view name) {
  return absl::StrCat(name, report.workers, report.workers == 1 ? " worker, " : " workers, ",
                      WithThousands(report.parameters), " parameters\n");
}

std::string LimitsText(const PlanReport& report) {
  std::string text;
  for (const MemoryCheck& check : report.checks) {
    absl::StrAppend(&text,
                    check.spare() >= 0 ? "fits: " : "does not fit: ", HumanBytes(check.needed),
                    IsTheory(report) ? " of model state" : "", " in ", HumanBytes(check.capacity),
                    " of ", check.limit, " memory, ", HumanBytes(std::abs(check.spare())),
                    check.spare() >= 0 ? " to spare\n" : " short\n");
  }
  if (IsTheory(report) && !text.empty()) {
    absl::StrAppend(&text, "(activations and buffers come on top; a job file would tell)\n");
  }
  return text;
}

std::string CostText(const PlanRequest& request) {
  return absl::StrCat("estimated with the cost model ", request.cost_source);
}

std::string EstimateText(const PlanReport& report, const PlanRequest& request) {
  if (!report.times) {
    if (!report.communication_seconds) return "";
    return absl::StrCat("communication: ", SecondsText(*report.communication_seconds),
                        " a step, hidden or not, ", CostText(request), "\n");
  }
  return absl::StrCat("step: ", SecondsText(report.times->step), ", of which ",
                      SecondsText(report.times->exposed), " of ",
                      SecondsText(report.times->communication), " communication exposed, ",
                      CostText(request), "\n");
}

// A row a name: bytes and messages of each ledger.
template <typename Wires>
std::string WireRows(absl::string_view title, const std::vector<v1::RankLedger>& ledgers,
                     const std::vector<std::string>& columns, const std::vector<std::string>& names,
                     Wires wires) {
  Rows rows = {{std::string(title)}};
  for (const std::string& column : columns) {
    rows.front().push_back(column);
    rows.front().emplace_back("messages");
  }
  for (const std::string& name : names) {
    std::vector<std::string>& row = rows.emplace_back(1, name);
    for (const v1::RankLedger& ledger : ledgers) {
      const auto found = wires(ledger).find(name);
      const bool sent = found != wires(ledger).end();
      row.push_back(sent ? HumanBytes(found->second.bytes().predicted()) : "-");
      row.push_back(sent ? WithThousands(found->second.messages().predicted()) : "-");
    }
  }
  return NumbersTable(rows);
}

std::string OffloadText(const PlanReport& report) {
  const bool offloads = report.ranks.front().offload() == v1::OFFLOAD_OPTIMIZER;
  return offloads ? kOffloadSentence : "";
}

// What a device with memory of its own and its host hold, beside what kernels take.
std::string OnDevicesText(const PlanReport& report) {
  if (report.on_devices.empty()) return "";
  Rows rows = {{"pool"}};
  for (const v1::RankLedger& rank : report.on_devices) {
    rows.front().push_back(absl::StrCat("rank ", rank.rank(), " device"));
    rows.front().emplace_back("host");
  }
  std::vector<v1::RankLedger> both = report.on_devices;
  for (v1::RankLedger& each : both) {
    each.mutable_memory()->insert(each.host_memory().begin(), each.host_memory().end());
  }
  const auto size = [](const auto& memory, const std::string& pool) {
    const auto found = memory.find(pool);
    return found == memory.end() ? "-" : HumanBytes(found->second.predicted());
  };
  for (const std::string& pool : PoolsOf(both)) {
    std::vector<std::string>& row = rows.emplace_back(1, pool);
    for (const v1::RankLedger& rank : report.on_devices) {
      row.push_back(size(rank.memory(), pool));
      row.push_back(size(rank.host_memory(), pool));
    }
  }
  return absl::StrCat("\nThe same on a GPU\n", NumbersTable(rows));
}

std::string RankTables(const PlanReport& report, const PlanRequest& request) {
  Rows memory = {{"pool"}};
  std::vector<std::string> columns;
  for (const v1::RankLedger& rank : report.ranks) {
    const bool every = report.ranks.size() == 1 && report.workers > 1 && !request.rank;
    columns.push_back(every ? "every rank" : absl::StrCat("rank ", rank.rank()));
  }
  memory.front().insert(memory.front().end(), columns.begin(), columns.end());
  for (const std::string& pool : PoolsOf(report.ranks)) {
    std::vector<std::string>& row = memory.emplace_back(1, pool);
    for (const v1::RankLedger& rank : report.ranks) {
      row.push_back(HumanBytes(rank.memory().at(pool).predicted()));
    }
  }
  std::string text =
      absl::StrCat("Memory of a rank\n", NumbersTable(memory), OffloadText(report),
                   OnDevicesText(report), "\nSent by a rank in one step\n",
                   WireRows(
                       "collective", report.ranks, columns, CollectivesOf(report.ranks),
                       [](const v1::RankLedger& ledger) -> const auto& { return ledger.wire(); }));
  // Of one group alone the total was said.
  const std::vector<std::string> groups = GroupsIn(report.ranks);
  if (groups.size() > 1) {
    absl::StrAppend(
        &text, "\nThe same by the group that it goes round in\n",
        WireRows(
            "group", report.ranks, columns, groups,
            [](const v1::RankLedger& ledger) -> const auto& { return ledger.wire_by_group(); }));
  }
  return text;
}

std::string TheoryTables(const PlanReport& report) {
  Rows memory = {{"params", DecimalBytes(report.state.params)},
                 {"grads", DecimalBytes(report.state.grads)},
                 {"optimizer", DecimalBytes(report.state.optimizer)},
                 {"total", DecimalBytes(report.state.total())}};
  if (report.gathered_bytes.value_or(0) > 0) {
    memory.push_back({"gathered beside it", DecimalBytes(*report.gathered_bytes)});
  }
  Rows wire;
  for (const WireUse& use : report.wire) wire.push_back({use.collective, DecimalBytes(use.bytes)});
  wire.push_back({"total", DecimalBytes(report.wire_total)});
  return absl::StrCat("Model state of a rank\n", NumbersTable(memory),
                      "\nSent by a rank in one step\n", NumbersTable(wire));
}

std::string FitsCell(const PlanReport& report) {
  if (report.checks.empty()) return "-";
  const int64_t spare = report.SpareBytes();
  return spare >= 0 ? absl::StrCat("yes, ", HumanBytes(spare), " to spare")
                    : absl::StrCat("no, ", HumanBytes(-spare), " short");
}

// "8", or "-" in every row where all are of as many.
std::string WorkersCell(const PlanReport& report, const std::vector<PlanReport>& reports) {
  const bool differ = std::any_of(reports.begin(), reports.end(), [&](const PlanReport& other) {
    return other.workers != reports[0].workers;
  });
  return differ ? absl::StrCat(report.workers) : "-";
}

std::string MemoryTable(const std::vector<PlanReport>& reports) {
  Rows rows = {{"strategy", "workers", "params", "grads", "optimizer", "state", "gathered", "peak",
                "redundant", "fits"}};
  for (const PlanReport& report : reports) {
    const auto size = [&](int64_t bytes) { return Size(report, bytes); };
    const auto size_or_dash = [&](const std::optional<int64_t>& bytes) {
      return bytes ? size(*bytes) : "-";
    };
    rows.push_back({RowName(report), WorkersCell(report, reports), size(report.state.params),
                    size(report.state.grads), size(report.state.optimizer),
                    size(report.state.total()), size_or_dash(report.gathered_bytes),
                    size_or_dash(report.peak_bytes), size(report.redundant_bytes),
                    FitsCell(report)});
  }
  return NumbersTable(WithoutEmptyColumns(rows));
}

std::string WireTable(const std::vector<PlanReport>& reports) {
  constexpr const char* kCollectives[] = {"all_gather", "reduce_scatter", "all_reduce", "exchange"};
  Rows rows = {{"strategy", "workers"}};
  rows[0].insert(rows[0].end(), std::begin(kCollectives), std::end(kCollectives));
  rows[0].insert(rows[0].end(), {"total", "communication", "exposed", "step"});
  for (const PlanReport& report : reports) {
    std::vector<std::string>& row = rows.emplace_back(1, RowName(report));
    row.push_back(WorkersCell(report, reports));
    for (const char* collective : kCollectives) {
      const auto found =
          std::find_if(report.wire.begin(), report.wire.end(),
                       [&](const WireUse& use) { return use.collective == collective; });
      const bool sent = found != report.wire.end() && found->bytes > 0;
      row.push_back(sent ? Size(report, found->bytes) : "-");
    }
    row.push_back(Size(report, report.wire_total));
    row.push_back(report.communication_seconds ? SecondsText(*report.communication_seconds) : "-");
    row.push_back(report.times ? SecondsText(report.times->exposed) : "-");
    row.push_back(report.times ? SecondsText(report.times->step) : "-");
  }
  return NumbersTable(WithoutEmptyColumns(rows));
}

}  // namespace

std::string DecimalBytes(int64_t bytes) {
  constexpr absl::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // 999.95 would print as 1000.0.
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string SecondsText(double seconds) {
  if (seconds >= 100) return absl::StrFormat("%.0f s", seconds);
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.1f ms", seconds * 1e3);
  return absl::StrFormat("%.1f us", seconds * 1e6);
}

std::string RowName(const PlanReport& report) {
  const std::string name = NameOf(report.choice);
  if (report.choice.strategy != v1::STRATEGY_HYBRID) return name;
  return absl::StrCat(name, " ", report.shard_group);
}

std::string PlanText(const PlanReport& report, const PlanRequest& request) {
  const std::string tensor = report.tensor > 1 ? absl::StrCat(", tensor ", report.tensor) : "";
  const std::string group = report.shard_group == report.data_degree()
                                ? ""
                                : absl::StrCat("shared by groups of ", report.shard_group, " of ");
  return absl::StrCat(
      Heading(report, absl::StrCat(NameOf(report.choice), tensor, ": ", group)), "\n",
      IsTheory(report) ? TheoryTables(report) : RankTables(report, request),
      "\nmodel state of all ranks beyond one copy: ", Size(report, report.redundant_bytes), "\n",
      EstimateText(report, request), LimitsText(report));
}

std::string ComparisonText(const std::vector<PlanReport>& reports, const PlanRequest& request) {
  const int64_t tensor = reports.front().tensor;
  std::string text = absl::StrCat(
      Heading(reports.front(), tensor > 1 ? absl::StrCat("tensor ", tensor, ": ") : ""),
      "\nMemory of a rank; redundant: model state of all ranks beyond one copy\n",
      MemoryTable(reports), "\nSent by a rank in one step",
      reports.front().communication_seconds ? absl::StrCat("; times are ", CostText(request)) : "",
      "\n", WireTable(reports), "\n");
  if (const std::optional<Recommendation> best = Recommend(reports)) {
    absl::StrAppend(&text, "recommended: ", ReasonText(reports, *best), "\n");
  }
  return text;
}

}  // namespace sherd
