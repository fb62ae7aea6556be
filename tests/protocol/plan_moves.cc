#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/protocol/model.h"
#include "tests/protocol/storage.h"

namespace sherd::protocol {

bool ProtocolModel::CanPlan(const State& state) const {
  const Coordinator& log = state.coordinator;
  const bool all = (log.involved & ~log.answered) == 0;
  if (!all && (policy_.waits_for_all_answers || log.answered == 0)) return false;
  return std::popcount(Present(log)) >= scenario_.min_world;
}

void ProtocolModel::Plan(const State& state, Moves<State>& moves) const {
  if (!CanPlan(state)) return;
  State next = state;
  Coordinator& log = next.coordinator;
  const Version version = Choose(state);
  SHERD_CHECK(log.epoch < kEpochs);
  ++log.epoch;
  log.phase = Phase::kForming;
  FillWorld(next);
  FillSources(next, version);
  log.starts[log.epoch] = log.from_step;
  log.involved |= NamedBy(log);
  log.answered = 0;
  log.reports.fill(Report{});
  JudgeChoice(next);
  if (!scenario_.heard_only && log.epoch > next.ghost.causes + 1)
    next.ghost.wrong = Wrong::kEpochWithoutCause;
  SendAll(next);
  const auto text = [&] {
    std::string text = absl::StrCat("The coordinator plans epoch ", log.epoch, " after step ",
                                    log.from_step, " of epoch ", log.from_epoch, ":");
    for (int rank = 0; rank < log.world; ++rank) {
      absl::StrAppend(&text, rank == 0 ? " " : ", ", "P", log.ranks[rank]);
      const int holder = log.holders[rank];
      if (holder != kProcesses) absl::StrAppend(&text, " (held by P", holder, ")");
    }
    return text;
  };
  Add(state, next, false, text, moves);
}

Version ProtocolModel::Choose(const State& state) const {
  const Coordinator& log = state.coordinator;
  std::string key(reinterpret_cast<const char*>(log.reports.data()), sizeof(log.reports));
  key.append(log.starts.begin(), log.starts.end());
  key.push_back(static_cast<char>(log.restored));
  key.push_back(static_cast<char>(log.epoch));
  const auto known = choices_.find(key);
  if (known != choices_.end()) return known->second;
  const std::vector<Holder> holders = HoldersOf(log);
  std::map<int64_t, int64_t> starts;
  for (int epoch = log.restored + 1; epoch <= log.epoch; ++epoch) starts[epoch] = log.starts[epoch];
  if (!policy_.steps_prove_restored) starts.clear();
  const int64_t restored = RestoredEpoch(log.restored, starts, holders);
  const Version chosen =
      policy_.choose(spec_, policy_.matches_epochs ? restored : 0, holders).value_or(Version{});
  choices_.emplace(std::move(key), chosen);
  return chosen;
}

std::vector<Holder> ProtocolModel::HoldersOf(const Coordinator& log) const {
  std::vector<Holder> holders(scenario_.processes);
  for (const Report& report : log.reports) {
    for (int p = 0; p < scenario_.processes; ++p) {
      if ((report.processes & Bit(p)) == 0) continue;
      holders[p].process = absl::StrCat("P", p);
      v1::Holding& holding = holders[p].holdings.emplace_back();
      holding.set_epoch(policy_.matches_epochs ? report.epoch : 0);
      holding.set_world(report.world);
      holding.set_owner(report.owner);
      holding.set_step(report.step);
    }
  }
  return holders;
}

// As many ranks as there may be; those that were some keep their places, or at least their order.
void ProtocolModel::FillWorld(State& next) const {
  Coordinator& log = next.coordinator;
  const Mask present = Present(log);
  const int world = std::min<int>(scenario_.max_world, std::popcount(present));
  std::array<uint8_t, kProcesses> ranks;
  ranks.fill(kProcesses);
  Mask used = 0;
  int place = 0;
  for (int old = 0; old < log.world; ++old) {
    const bool stays = (present & Bit(log.ranks[old])) != 0;
    if (world != log.world && (!stays || place == world)) continue;
    if (stays) ranks[place] = log.ranks[old];
    if (stays) used |= Bit(log.ranks[old]);
    ++place;
  }
  const auto idle = [&]() -> uint8_t {
    const auto free = static_cast<Mask>(present & ~used);
    return free == 0 ? kProcesses : static_cast<uint8_t>(std::countr_zero(free));
  };
  for (int rank = 0; rank < world; ++rank) {
    if (ranks[rank] != kProcesses) continue;
    ranks[rank] = idle();
    used |= Bit(ranks[rank]);
  }
  log.world = static_cast<uint8_t>(world);
  log.ranks.fill(0);
  log.holders.fill(0);
  for (int rank = 0; rank < world; ++rank) {
    log.ranks[rank] = ranks[rank];
    log.holders[rank] = world > 1 ? ranks[(rank + 1) % world] : idle();
  }
}

void ProtocolModel::FillSources(State& next, const Version& version) const {
  Coordinator& log = next.coordinator;
  log.from_epoch = static_cast<uint8_t>(version.epoch);
  log.from_world = static_cast<uint8_t>(version.world);
  log.from_step = static_cast<uint8_t>(version.step);
  log.sources.fill(0);
  for (const Report& report : log.reports) {
    const bool matches = version.epoch == 0 || report.epoch == version.epoch;
    if (!matches || report.world != version.world || report.step != version.step) continue;
    log.sources[report.owner] |= report.processes;
  }
}

// Whether a committed step is lost by what the new epoch starts from.
void ProtocolModel::JudgeChoice(State& next) const {
  const Coordinator& log = next.coordinator;
  Ghost& ghost = next.ghost;
  ghost.start = 0;
  for (int part = 0; part < log.from_world; ++part) {
    std::optional<Slot> found;
    for (int p = 0; p < scenario_.processes && !found.has_value(); ++p) {
      if ((log.sources[part] & Bit(p)) == 0) continue;
      found = HeldBy(next, p, part, log.from_world, log.from_epoch, log.from_step);
    }
    if (!found.has_value()) continue;
    if (ghost.start != 0 && found->lineage != ghost.start) ghost.wrong = Wrong::kMixedValues;
    ghost.start = found->lineage;
  }
  const bool kept = log.from_step >= ghost.committed &&
                    (ghost.start == 0 || Prefix(ghost.start, ghost.committed) == ghost.lineage);
  if (ghost.lost > scenario_.promised) ghost.excused = 1;
  if (kept) return;
  if (ghost.lost <= scenario_.promised) {
    ghost.wrong = Wrong::kLostCommit;
    return;
  }
  // The user is told; what is true from now on is the older state.
  ghost.committed = log.from_step;
  ghost.lineage = ghost.start;
}

}  // namespace sherd::protocol
