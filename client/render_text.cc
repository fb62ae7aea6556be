#include "client/render_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ledger_order.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// Characters, not bytes: names and reasons may hold any UTF-8.
size_t Width(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string OrDash(absl::string_view text) { return std::string(text.empty() ? "-" : text); }

std::string LossText(const v1::Job& job) {
  return job.step() > 0 ? absl::StrFormat("%.4f", job.loss()) : "-";
}

std::string StepText(const v1::Job& job) {
  const int64_t steps = job.spec().train().steps();
  return steps > 0 ? absl::StrCat(job.step(), "/", steps) : absl::StrCat(job.step());
}

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixMillis(unix_ms),
                          absl::UTCTimeZone());
}

// One table for up to `kRanksAcross` ranks: a row a name, a cell "predicted / measured" a rank.
template <typename Cell>
std::string PerRank(absl::string_view title, const std::vector<v1::RankLedger>& ledgers,
                    const std::vector<std::string>& names, Cell cell) {
  constexpr size_t kRanksAcross = 4;
  std::string text;
  for (size_t begin = 0; begin < ledgers.size(); begin += kRanksAcross) {
    const size_t end = std::min(ledgers.size(), begin + kRanksAcross);
    std::vector<std::vector<std::string>> rows = {{std::string(title)}};
    for (size_t i = begin; i < end; ++i) {
      rows[0].push_back(absl::StrCat("rank ", ledgers[i].rank()));
    }
    for (const std::string& name : names) {
      std::vector<std::string>& row = rows.emplace_back(1, name);
      for (size_t i = begin; i < end; ++i) row.push_back(cell(ledgers[i], name));
    }
    std::vector<bool> right(rows[0].size(), true);
    right[0] = false;
    absl::StrAppend(&text, text.empty() ? "" : "\n", Table(rows, right));
  }
  return text;
}

// "step  10/200".
std::string StepOf(const v1::StepReport& step, int64_t steps) {
  if (steps <= 0) return absl::StrCat("step ", step.step());
  const std::string total = absl::StrCat(steps);
  return absl::StrFormat("step %*d/%s", static_cast<int>(total.size()), step.step(), total);
}

std::string Speed(const v1::StepReport& step) {
  return WithThousands(std::llround(std::min(step.tokens_per_second(), 1e15)));
}

std::string Eta(const v1::StepReport& step, int64_t steps, std::optional<absl::Duration> left) {
  return left && step.step() < steps ? absl::StrCat("  ETA ", HumanDuration(*left)) : "";
}

// The row of what the operating system counts; nothing is predicted for it but the peak.
constexpr char kProcess[] = "process";

bool Agrees(const v1::LedgerLine& line) { return line.predicted() == line.measured(); }

// Numbers that differ are told to the byte.
std::string PairText(const v1::LedgerLine& line) {
  if (Agrees(line)) {
    return absl::StrCat(HumanBytes(line.predicted()), " / ", HumanBytes(line.measured()));
  }
  return absl::StrCat(WithThousands(line.predicted()), " != ", WithThousands(line.measured()),
                      " B");
}

template <typename Wires>
int64_t CountDifferences(const Wires& wires) {
  return std::count_if(wires.begin(), wires.end(), [](const auto& line) {
    return !Agrees(line.second.bytes()) || !Agrees(line.second.messages());
  });
}

// How many of the ledgers' numbers are not as predicted, messages included.
int64_t CountDifferences(const std::vector<v1::RankLedger>& ledgers) {
  int64_t count = 0;
  for (const v1::RankLedger& ledger : ledgers) {
    for (const auto& [pool, line] : ledger.memory()) count += Agrees(line) ? 0 : 1;
    for (const auto& [pool, line] : ledger.host_memory()) count += Agrees(line) ? 0 : 1;
    count += CountDifferences(ledger.wire()) + CountDifferences(ledger.wire_by_group());
  }
  return count;
}

std::string LedgerVerdict(const std::vector<v1::RankLedger>& ledgers) {
  if (const int64_t count = CountDifferences(ledgers); count > 0) {
    return absl::StrCat("predicted and measured differ in ", count, count == 1 ? " line" : " lines",
                        ": see !=, or the messages in -o json\n");
  }
  return ledgers.size() == 1
             ? "predicted = measured to the byte\n"
             : absl::StrCat("predicted = measured to the byte on all ", ledgers.size(), " ranks\n");
}

// Whether anything was to be sent or was sent.
bool AnySent(const std::vector<v1::RankLedger>& ledgers) {
  for (const v1::RankLedger& ledger : ledgers) {
    for (const auto& [collective, line] : ledger.wire()) {
      if (line.bytes().predicted() != 0 || line.bytes().measured() != 0) return true;
    }
  }
  return false;
}

}  // namespace

std::string Table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<bool>& right_aligned) {
  std::vector<size_t> widths(right_aligned.size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - Width(row[c]), ' ');
      const bool last = c + 1 == row.size();
      absl::StrAppend(&text, c == 0 ? "" : "  ", right_aligned[c] ? padding : "", row[c],
                      right_aligned[c] || last ? "" : padding);
    }
    text += "\n";
  }
  return text;
}

std::string HumanBytes(int64_t bytes) {
  constexpr absl::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes > -1024 && bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.95 would print as 1024.0.
  while (std::abs(value) >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string WithThousands(int64_t value) {
  std::string text = absl::StrCat(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string HumanDuration(absl::Duration duration) {
  if (duration < absl::Seconds(1)) return "<1s";
  if (duration > absl::Hours(24 * 365)) return "more than a year";
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
}

std::string JobsTable(const std::vector<v1::Job>& jobs) {
  std::vector<std::vector<std::string>> rows = {
      {"ID", "NAME", "STATE", "STEP", "LOSS", "SUBMITTED", "REASON"}};
  for (const v1::Job& job : jobs) {
    rows.push_back({job.id(), job.name(), std::string(NameOf(job.state())), StepText(job),
                    LossText(job), TimeText(job.submitted_unix_ms()), OrDash(job.reason())});
  }
  return Table(rows, {false, false, false, true, true, false, false});
}

std::string WorkersTable(const std::vector<v1::Worker>& workers) {
  std::vector<std::vector<std::string>> rows = {{"ID", "DEVICE", "HOST", "STATUS", "JOB", "RANK"}};
  for (const v1::Worker& worker : workers) {
    const bool busy = !worker.job_id().empty();
    rows.push_back({worker.id(), worker.device(), worker.host(), worker.status(),
                    OrDash(worker.job_id()), busy ? absl::StrCat(worker.rank()) : "-"});
  }
  return Table(rows, {false, false, false, false, false, true});
}

std::string JobText(const v1::Job& job) {
  std::string text = Table({{"id", job.id()},
                            {"name", job.name()},
                            {"state", std::string(NameOf(job.state()))},
                            {"reason", OrDash(job.reason())},
                            {"epoch", absl::StrCat(job.epoch())},
                            {"step", StepText(job)},
                            {"loss", LossText(job)},
                            {"submitted", TimeText(job.submitted_unix_ms())},
                            {"ended", TimeText(job.ended_unix_ms())},
                            {"weights", OrDash(job.weights_path())}},
                           {false, false});
  if (job.ranks().empty()) return text;
  std::vector<std::vector<std::string>> rows = {{"RANK", "WORKER", "STATUS", "REASON"}};
  for (const v1::RankStatus& rank : job.ranks()) {
    rows.push_back(
        {absl::StrCat(rank.rank()), rank.worker_id(), rank.status(), OrDash(rank.reason())});
  }
  return absl::StrCat(text, "\n", Table(rows, {true, false, false, false}));
}

std::string LedgerTables(const std::vector<v1::RankLedger>& ledgers) {
  std::map<int, v1::RankLedger> last;
  for (const v1::RankLedger& ledger : ledgers) last[ledger.rank()] = ledger;
  std::vector<v1::RankLedger> ranks;
  for (const auto& [rank, ledger] : last) ranks.push_back(ledger);
  if (ranks.empty()) return "";
  const auto memory = [](const v1::RankLedger& ledger, const std::string& pool) {
    if (pool == kProcess) {
      return ledger.process_bytes() == 0 ? "-" : HumanBytes(ledger.process_bytes());
    }
    const auto found = ledger.memory().find(pool);
    return found == ledger.memory().end() ? "-" : PairText(found->second);
  };
  const auto host_memory = [](const v1::RankLedger& ledger, const std::string& pool) {
    const auto found = ledger.host_memory().find(pool);
    return found == ledger.host_memory().end() ? "-" : PairText(found->second);
  };
  const auto wire = [](const v1::RankLedger& ledger, const std::string& collective) {
    const auto found = ledger.wire().find(collective);
    return found == ledger.wire().end() ? "-" : PairText(found->second.bytes());
  };
  const auto group_wire = [](const v1::RankLedger& ledger, const std::string& group) {
    const auto found = ledger.wire_by_group().find(group);
    return found == ledger.wire_by_group().end() ? "-" : PairText(found->second.bytes());
  };
  std::vector<std::string> pools = PoolsOf(ranks);
  pools.emplace_back(kProcess);
  std::string sent =
      AnySent(ranks) ? absl::StrCat("Bytes sent by each rank in one step: predicted / measured\n",
                                    PerRank("collective", ranks, CollectivesOf(ranks), wire))
                     : "Bytes sent by each rank in one step: none\n";
  // Of one group alone the total was said.
  const std::vector<std::string> groups = GroupsIn(ranks);
  if (AnySent(ranks) && groups.size() > 1) {
    absl::StrAppend(&sent, "\nThe same by the group that they went round in\n",
                    PerRank("group", ranks, groups, group_wire));
  }
  const bool offloads = ranks.front().offload() == v1::OFFLOAD_OPTIMIZER;
  std::string on_hosts;
  if (const std::vector<std::string> names = HostPoolsOf(ranks); !names.empty()) {
    on_hosts = absl::StrCat("\nOn the hosts beside it: predicted / measured\n",
                            PerRank("pool", ranks, names, host_memory));
  }
  return absl::StrCat("Peak memory by rank and pool: predicted / measured\n",
                      PerRank("pool", ranks, pools, memory), offloads ? kOffloadSentence : "",
                      on_hosts, "\n", sent, "\n", LedgerVerdict(ranks));
}

std::string StepLine(const v1::StepReport& step, int64_t steps,
                     std::optional<absl::Duration> left) {
  return absl::StrFormat("%s  loss %.4f  grad norm %.3f  lr %.2e  %s tokens/s  %.0f ms%s",
                         StepOf(step, steps), step.loss(), step.grad_norm(), step.lr(), Speed(step),
                         step.step_ms(), Eta(step, steps, left));
}

std::string BarLine(const v1::StepReport& step, int64_t steps, absl::Duration left) {
  constexpr int64_t kCells = 16;
  const int64_t filled =
      std::clamp<int64_t>(step.step() * kCells / std::max<int64_t>(1, steps), 0, kCells);
  return absl::StrFormat("[%s%s] %s  loss %.3f  %s tokens/s%s",
                         std::string(static_cast<size_t>(filled), '#'),
                         std::string(static_cast<size_t>(kCells - filled), '-'),
                         StepOf(step, steps), step.loss(), Speed(step), Eta(step, steps, left));
}

std::string EvalLine(const v1::EvalReport& eval) {
  return absl::StrFormat("held-out loss %.4f nats a token after step %d (%s tokens)", eval.loss(),
                         eval.step(), WithThousands(eval.tokens()));
}

}  // namespace sherd
