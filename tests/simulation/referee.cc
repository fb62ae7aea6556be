#include "tests/simulation/referee.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/lineage.h"

namespace sherd::simulation {
void Referee::Accuse(std::string sentence) {
  trace_.Say("WRONG: ", sentence);
  if (!verdict_) verdict_ = std::move(sentence);
}

void Referee::Began(const std::string& job, int64_t epoch, int rank, uint64_t life) {
  const auto [other, first] = working_.insert({{job, epoch, rank}, life});
  if (!first) {
    Accuse(absl::StrCat("rank ", rank, " of epoch ", epoch, " of ", job,
                        " is worked on twice: by life ", other->second, " and by life ", life));
  }
  const std::string work = absl::StrCat("rank ", rank, " of epoch ", epoch, " of ", job);
  const auto [busy, free] = busy_.insert({life, work});
  if (!free) Accuse(absl::StrCat("life ", life, " begins ", work, " and still is ", busy->second));
}

void Referee::Ended(const std::string& job, int64_t epoch, int rank, uint64_t life) {
  working_.erase({job, epoch, rank});
  busy_.erase(life);
}

void Referee::Stores(const std::string& job, int64_t epoch, const Lineage& lineage) {
  const auto [known, first] =
      versions_.insert({{job, epoch, static_cast<int64_t>(lineage.size())}, lineage});
  if (!first && known->second != lineage) {
    Accuse(absl::StrCat("epoch ", epoch, " of ", job, " stores ", Described(lineage), " and ",
                        Described(known->second), " under one name"));
  }
}

void Referee::Saves(const std::string& job, const std::string& path, const Lineage& lineage) {
  checkpoints_[{job, path}] = lineage;
}

void Referee::IsReady(const std::string& job, int64_t epoch, int rank, const Lineage& lineage) {
  const auto [known, first] = restored_.insert({{job, epoch}, lineage});
  if (!first && known->second != lineage) {
    Accuse(absl::StrCat("the ranks of epoch ", epoch, " of ", job, " restored ", Described(lineage),
                        " and ", Described(known->second)));
  }
  Job& known_job = jobs_[job];
  if (known_job.epoch != epoch) return;
  known_job.ready.insert(rank);
  if (static_cast<int>(known_job.ready.size()) != known_job.world) return;
  known_job.named = known_job.current;
  known_job.missing.clear();
  for (const uint64_t life : known_job.named) {
    if (lost_.contains(life)) known_job.missing.insert(life);
  }
}

void Referee::Commits(const std::string& name, int64_t epoch, const Lineage& lineage) {
  Job& job = jobs_[name];
  if (epoch < job.forgiven_before) return;
  const auto step = static_cast<int64_t>(lineage.size());
  if (epoch < job.epoch && step > job.went_on_after) {
    return Accuse(absl::StrCat("epoch ", epoch, " of ", name, " commits step ", step,
                               " although epoch ", job.epoch, " goes on after step ",
                               job.went_on_after));
  }
  const bool agrees = IsPrefix(lineage, job.committed) || IsPrefix(job.committed, lineage);
  if (!agrees) {
    return Accuse(absl::StrCat("epoch ", epoch, " of ", name, " commits ", Described(lineage),
                               ", but ", Described(job.committed), " was committed"));
  }
  if (lineage.size() <= job.committed.size()) return;
  ++committed_;
  job.committed = lineage;
}

void Referee::IsLost(uint64_t life) {
  if (!lost_.insert(life).second) return;
  for (auto& [name, job] : jobs_) {
    if (job.named.contains(life)) job.missing.insert(life);
  }
}

void Referee::SeeBatch(const LogBatch& batch) {
  for (const v1::DurableEvent& event : batch.events) {
    if (event.has_worker_lost()) IsLost(event.worker_lost().incarnation());
  }
  for (const v1::JobEvent& entry : batch.feed) SeeFeed(entry);
}

void Referee::SeeFeed(const v1::JobEvent& entry) {
  Job& job = jobs_[entry.job_id()];
  if (entry.sequence() != ++job.feed_sequence) {
    Accuse(absl::StrCat("the feed of ", entry.job_id(), " has entry ", entry.sequence(),
                        " instead of ", job.feed_sequence));
  }
  if (entry.has_state()) {
    trace_.Say("feed of ", entry.job_id(), ": ", v1::JobState_Name(entry.state().state()), " ",
               entry.state().reason());
  }
  if (entry.has_done()) job.done = true;
  if (entry.has_rollback()) {
    trace_.Say("feed of ", entry.job_id(), ": rollback from step ", entry.rollback().from_step(),
               " to ", entry.rollback().to_step());
    job.feed_step = std::min(job.feed_step, entry.rollback().to_step());
    if (forbids_rollbacks_) Accuse(absl::StrCat(entry.job_id(), " loses what was still there"));
  }
  if (!entry.has_step()) return;
  const int64_t step = entry.step().step();
  trace_.Say("feed of ", entry.job_id(), ": step ", step);
  if (step != job.feed_step + 1) {
    Accuse(absl::StrCat("the feed of ", entry.job_id(), " tells step ", step, " after step ",
                        job.feed_step));
  }
  if (step > static_cast<int64_t>(job.committed.size())) {
    Accuse(absl::StrCat("the feed of ", entry.job_id(), " tells step ", step, ", but only ",
                        Described(job.committed), " is committed"));
  }
  job.feed_step = step;
}

void Referee::SeeEnd(const State& state) {
  for (const auto& [id, record] : state.jobs) {
    Job& job = jobs_[id.value()];
    if (!IsTerminal(record.state)) {
      Accuse(absl::StrCat(id.value(), " is stuck: ", v1::JobState_Name(record.state), ", epoch ",
                          record.epoch.value(), ", ", record.reason));
      continue;
    }
    if (!job.done) Accuse(absl::StrCat("the feed of ", id.value(), " does not tell its end"));
    if (record.state == v1::JOB_STATE_SUCCEEDED && job.feed_step != record.spec.train().steps()) {
      Accuse(absl::StrCat(id.value(), " succeeded and its feed ends with step ", job.feed_step));
    }
  }
  for (const auto& [id, worker] : state.workers) {
    if (worker.alive && worker.seat) {
      Accuse(absl::StrCat("worker ", id.value(), " still is a rank of ", worker.seat->job.value(),
                          ", which has ended"));
    }
  }
  for (const auto& [life, work] : busy_) {
    Accuse(absl::StrCat("life ", life, " still works as ", work));
  }
}

}  // namespace sherd::simulation
