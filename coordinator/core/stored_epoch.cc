#include "coordinator/core/stored_epoch.h"

#include <string>
#include <vector>

namespace sherd::stored_epoch {

v1::StoredRank Write(const RankState& rank) {
  const auto& [worker, incarnation, phase, reason, left, holders] = rank;
  v1::StoredRank stored;
  stored.set_worker(worker.value());
  stored.set_incarnation(incarnation.value());
  stored.set_phase(static_cast<int32_t>(phase));
  stored.set_reason(reason);
  stored.set_left(left);
  for (const WorkerId& holder : holders) stored.add_holders(holder.value());
  return stored;
}

RankState Read(const v1::StoredRank& stored) {
  RankState rank;
  rank.worker = WorkerId(stored.worker());
  rank.incarnation = Incarnation(stored.incarnation());
  rank.phase = static_cast<RankPhase>(stored.phase());
  rank.reason = stored.reason();
  rank.left = stored.left();
  for (const std::string& holder : stored.holders()) rank.holders.emplace_back(holder);
  return rank;
}

v1::StoredCopyHolder Write(const CopyHolder& holder) {
  const auto& [worker, incarnation, left, source, returned] = holder;
  v1::StoredCopyHolder stored;
  stored.set_worker(worker.value());
  stored.set_incarnation(incarnation.value());
  stored.set_left(left);
  stored.set_source(source);
  stored.set_returned(returned);
  return stored;
}

CopyHolder Read(const v1::StoredCopyHolder& stored) {
  return {WorkerId(stored.worker()), Incarnation(stored.incarnation()), stored.left(),
          stored.source(), stored.returned()};
}
v1::StoredRestorePoint Write(const RestorePoint& point) {
  const auto& [version, parts, checkpoint, step] = point;
  v1::StoredRestorePoint stored;
  if (version) {
    const auto& [epoch, world, version_step] = *version;
    stored.mutable_version()->set_epoch(epoch);
    stored.mutable_version()->set_world(world);
    stored.mutable_version()->set_step(version_step);
  }
  for (const auto& [part, holders] : parts) {
    v1::StoredPart& stored_part = *stored.add_parts();
    stored_part.set_part(part);
    for (const auto& [owner, worker, incarnation] : holders) {
      v1::StoredPartHolder& holder = *stored_part.add_holders();
      holder.set_owner(owner);
      holder.set_worker(worker.value());
      holder.set_incarnation(incarnation.value());
    }
  }
  stored.set_checkpoint(checkpoint);
  stored.set_step(step);
  return stored;
}

RestorePoint Read(const v1::StoredRestorePoint& stored) {
  RestorePoint point;
  if (stored.has_version()) {
    point.version =
        Version{stored.version().epoch(), stored.version().world(), stored.version().step()};
  }
  for (const v1::StoredPart& part : stored.parts()) {
    std::vector<PartHolder>& holders = point.parts[part.part()];
    for (const v1::StoredPartHolder& holder : part.holders()) {
      holders.push_back(
          {holder.owner(), WorkerId(holder.worker()), Incarnation(holder.incarnation())});
    }
  }
  point.checkpoint = stored.checkpoint();
  point.step = stored.step();
  return point;
}

v1::StoredEpochTimes Write(const EpochTimes& times) {
  const auto& [struck, ended, answered, assigned, running, forming] = times;
  v1::StoredEpochTimes stored;
  stored.set_struck(struck);
  stored.set_ended(ended);
  stored.set_answered(answered);
  stored.set_assigned(assigned);
  stored.set_running(running);
  stored.set_forming(forming);
  return stored;
}

EpochTimes Read(const v1::StoredEpochTimes& stored) {
  return {.struck = stored.struck(),
          .ended = stored.ended(),
          .answered = stored.answered(),
          .assigned = stored.assigned(),
          .running = stored.running(),
          .forming = stored.forming()};
}

v1::StoredPatience Write(const Patience& patience) {
  const auto& [what, since_unix_ms, delay_ms, silent_over, save_due] = patience;
  v1::StoredPatience stored;
  stored.set_what(static_cast<int32_t>(what));
  stored.set_since_unix_ms(since_unix_ms);
  stored.set_delay_ms(delay_ms);
  stored.set_silent_over(silent_over);
  stored.set_save_due(save_due);
  return stored;
}

Patience Read(const v1::StoredPatience& stored) {
  return {.what = static_cast<Patience::For>(stored.what()),
          .since_unix_ms = stored.since_unix_ms(),
          .delay_ms = stored.delay_ms(),
          .silent_over = stored.silent_over(),
          .save_due = stored.save_due()};
}

}  // namespace sherd::stored_epoch
