#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/copies.h"
#include "tests/simulation/lineage.h"
#include "tests/simulation/referee.h"

// What the referee thinks of where an epoch goes on.

namespace sherd::simulation {

void Referee::SeeState(const State& state) {
  for (const auto& [id, record] : state.jobs) {
    Job& job = jobs_[id.value()];
    // Of one that was planned and cancelled in one turn nobody is told.
    if (record.epoch.value() != job.epoch && !IsTerminal(record.state)) SeePlan(job, record);
  }
}

void Referee::SeePlan(Job& job, const JobRecord& record) {
  const std::string& name = record.id.value();
  if (record.epoch.value() < job.epoch) {
    return Accuse(
        absl::StrCat(name, " went back from epoch ", job.epoch, " to ", record.epoch.value()));
  }
  ++epochs_;
  // It measures: nothing is there yet, and nothing comes of it.
  if (IsUndecided(record)) {
    job.epoch = record.epoch.value();
    return;
  }
  const int64_t step = record.restore.step;
  const auto lost = static_cast<int64_t>(job.missing.size());
  trace_.Say(name, ": epoch ", record.epoch.value(), " of ", record.ranks.size(),
             " ranks goes on after step ", step, "; committed: ", Described(job.committed), "; ",
             lost, " lost of the last whole world, which survives ", job.promised);
  Lineage restored;
  if (record.restore.version) {
    const Version& version = *record.restore.version;
    const auto known = versions_.find({name, version.epoch, version.step});
    if (known == versions_.end()) return Accuse(absl::StrCat(name, " restores what nobody stored"));
    restored = known->second;
  } else if (!record.restore.checkpoint.empty()) {
    restored = Saved(name, record.restore.checkpoint);
  }
  const bool keeps = IsPrefix(job.committed, restored);
  if (!keeps && lost <= job.promised) {
    Accuse(absl::StrCat(name, " loses ", Described(job.committed), " by going on after ",
                        Described(restored), ", although ", lost, " processes were lost and ",
                        job.promised, " may be"));
  }
  if (!keeps && record.checkpoint && record.checkpoint->step > step) {
    Accuse(absl::StrCat(name, " goes on after step ", step, " although a checkpoint has step ",
                        record.checkpoint->step));
  }
  // Who thaws of such a world may find nobody who has fenced its memory.
  if (lost > job.promised) job.forgiven_before = record.epoch.value();
  // Nor did anybody see who was lost of an epoch that was planned and ended in the same turn.
  if (record.epoch.value() > job.epoch + 1) job.forgiven_before = record.epoch.value();
  if (!keeps) {
    ++rollbacks_;
    job.committed = restored;
  }
  job.epoch = record.epoch.value();
  job.world = static_cast<int>(record.ranks.size());
  job.went_on_after = step;
  job.ready.clear();
  job.current.clear();
  for (const RankState& rank : record.ranks) job.current.insert(rank.incarnation.value());
  for (const CopyHolder& holder : record.holders) job.current.insert(holder.incarnation.value());
  for (const uint64_t life : job.current) {
    job.named.insert(life);
    if (lost_.contains(life)) job.missing.insert(life);
  }
  // Until the new world is whole, the smaller of the two.
  job.promised = record.epoch == FirstEpochOf(record)
                     ? FewestCopies(record)
                     : std::min(job.promised, FewestCopies(record));
}

}  // namespace sherd::simulation
