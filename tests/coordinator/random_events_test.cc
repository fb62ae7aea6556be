// Random lives of jobs and workers: whatever happens, in whatever order, the rules hold.

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/snapshot.h"
#include "gtest/gtest.h"
#include "tests/coordinator/chaos.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

constexpr int kSequences = 100'000;

// What is wrong with what jobs know of their past.
std::string RecoveryViolation(const State& state) {
  for (const auto& [id, job] : state.jobs) {
    for (const auto& [worker, answer] : job.answers) {
      if (!IsAlive(state, worker, answer.incarnation)) {
        return absl::StrCat(id.value(), " relies on what ", worker.value(), " held");
      }
    }
    if (!IsUnderway(job.state)) continue;
    if (job.state != v1::JOB_STATE_RECOVERING && (job.aborted || job.paused)) {
      return absl::StrCat(id.value(), " goes on in an epoch that was stopped");
    }
    if (job.state == v1::JOB_STATE_FORMING && job.restore.version) {
      const v1::ParallelSpec* layout = LayoutOf(job, job.restore.version->epoch);
      if (layout == nullptr) return absl::StrCat(id.value(), " restores what it cannot cut");
      const int parts = PartsOf(*layout, job.restore.version->world);
      if (static_cast<int>(job.restore.parts.size()) != parts) {
        return absl::StrCat(id.value(), " restores a version that is not whole");
      }
    }
    for (const CopyHolder& holder : job.holders) {
      if (!holder.left && !IsAlive(state, holder.worker, holder.incarnation)) {
        return absl::StrCat(id.value(), " waits for the dead ", holder.worker.value());
      }
    }
  }
  return "";
}

// What is wrong with the state; "" when nothing is.
std::string Violation(const State& state) {
  for (const auto& [id, job] : state.jobs) {
    const bool queued = job.state == v1::JOB_STATE_QUEUED;
    if (queued != (std::count(state.queue.begin(), state.queue.end(), id) == 1)) {
      return absl::StrCat("queue and state of ", id.value(), " disagree");
    }
    if (!IsUnderway(job.state)) continue;
    // Never half placed: every rank of an epoch has a worker of its own, as large a world as asked.
    const int64_t world = static_cast<int64_t>(job.ranks.size());
    const int64_t tensor = std::max<int64_t>(1, job.spec.parallel().tensor());
    // A log that is older than its workers may know of no decision: then they are asked what they
    // hold. So is who returns.
    const bool held = std::any_of(job.holders.begin(), job.holders.end(),
                                  [](const CopyHolder& holder) { return !holder.returned; });
    if (IsUndecided(job) && job.told_epoch <= job.epoch &&
        (job.step > 0 || held || job.save_and_stop)) {
      return absl::StrCat(id.value(), " keeps something of a measurement");
    }
    // What only saves is of whole groups, and no more.
    // The log may be older than the job, and know of none of its epochs.
    const bool enough = job.save_and_stop || (job.ranks.empty() && job.told_epoch > Epoch()) ||
                        world >= job.spec.elastic().min_workers();
    if (!enough || world % tensor != 0) {
      return absl::StrCat(id.value(), " has a world of ", world);
    }
    if (job.spec.elastic().max_workers() > 0 && world > job.spec.elastic().max_workers()) {
      return absl::StrCat(id.value(), " has a world of ", world);
    }
    std::set<WorkerId> members;
    for (int rank = 0; rank < world; ++rank) {
      const RankState& member = job.ranks[rank];
      if (!members.insert(member.worker).second) {
        return absl::StrCat(member.worker.value(), " has two ranks of ", id.value());
      }
      if (member.left || job.aborted) continue;
      const WorkerState* worker = FindWorker(state, member.worker);
      const Seat seat{id, job.epoch, rank};
      if (worker == nullptr || !worker->alive || worker->incarnation != member.incarnation ||
          worker->seat != seat) {
        return absl::StrCat("rank ", rank, " of ", id.value(), " has no worker");
      }
    }
  }
  std::set<std::pair<std::string, std::pair<int64_t, int>>> seats;
  for (const auto& [id, worker] : state.workers) {
    if (!worker.seat) continue;
    if (!worker.alive) return absl::StrCat("lost worker ", id.value(), " has a seat");
    const Seat& seat = *worker.seat;
    // Of a job that is unknown or has gone on, a Hello may say anything: it is only waited for.
    const JobRecord* job = FindJob(state, seat.job);
    if (job == nullptr || job->epoch != seat.epoch) {
      // A process of an older epoch has been told to stop, and takes no part in this one.
      const bool twice =
          job != nullptr && IsUnderway(job->state) &&
          std::any_of(job->ranks.begin(), job->ranks.end(), [&](const auto& rank) {
            return !rank.left && rank.worker == id && rank.incarnation == worker.incarnation;
          });
      if (twice) return absl::StrCat(id.value(), " is in two epochs of ", seat.job.value());
      continue;
    }
    const auto world = static_cast<int>(job->ranks.size());
    if (seat.rank < 0 || seat.rank >= world || job->ranks[seat.rank].worker != id ||
        job->ranks[seat.rank].incarnation != worker.incarnation) {
      return absl::StrCat(id.value(), " has a seat that is not its own");
    }
    if (!seats.insert({seat.job.value(), {seat.epoch.value(), seat.rank}}).second) {
      return absl::StrCat("two workers are rank ", seat.rank, " of ", seat.job.value());
    }
  }
  return RecoveryViolation(state);
}

// What the last event of a sequence led to, by name.
void CountReached(const Scenario& scenario, std::map<std::string, int64_t>& reached) {
  reached["pause"] += !scenario.ActionsOf<SendPause>().empty();
  reached["dismissal"] += !scenario.ActionsOf<SendShutdown>().empty();
  reached["question to a holder"] += !scenario.ActionsOf<SendReportHoldings>().empty();
  for (const SendRetain& retain : scenario.ActionsOf<SendRetain>()) {
    reached["restored epoch"] += !retain.ended;
  }
  for (const v1::JobEvent& entry : scenario.Feed()) {
    reached["rollback"] += entry.has_rollback();
    reached["decision"] += entry.has_decision();
  }
  for (const auto& [id, job] : scenario.state().jobs) {
    if (job.state != v1::JOB_STATE_FORMING) continue;
    reached["restore of a version"] += job.restore.version.has_value();
    reached["restore of a checkpoint"] += !job.restore.checkpoint.empty();
    reached["epoch that saves"] += job.save_and_stop;
    reached["exclusion"] += !job.excluded.empty();
    reached["broken link"] += !job.broken.empty();
    reached["epoch after one that only workers knew"] +=
        job.told_epoch > Epoch() && job.epoch.value() == job.told_epoch.value() + 1;
  }
}

std::string TextOf(const Actions& actions) {
  std::string text;
  for (const Action& action : actions) {
    absl::StrAppend(&text, action.index(), " ");
    const auto* publish = std::get_if<PublishFeed>(&action);
    if (publish != nullptr) absl::StrAppend(&text, publish->event.ShortDebugString(), "\n");
  }
  return text;
}

// What differs when the log goes on from a snapshot of its first `covered` events.
std::string GoneOn(const std::vector<v1::DurableEvent>& log, size_t covered) {
  State state;
  for (size_t at = 0; at < covered; ++at) Apply(log[at], state);
  absl::StatusOr<State> read = ReadState(WriteState(state));
  if (!read.ok()) return std::string(read.status().message());
  for (size_t at = covered; at < log.size(); ++at) {
    if (TextOf(Apply(log[at], *read)) != TextOf(Apply(log[at], state))) {
      return absl::StrCat("other actions at event ", at + 1);
    }
  }
  return Describe(*read) == Describe(state) ? "" : "another state";
}

// F25, F27: in particular, no worker is ever a rank of two epochs.
TEST(RandomEvents, NeverBreakTheRulesAndNeverGetStuck) {
  int64_t events = 0;
  std::map<v1::JobState, int64_t> ends;
  std::map<std::string, int64_t> reached;
  for (uint64_t seed = 0; seed < kSequences; ++seed) {
    Chaos chaos(seed);
    const int steps = 10 + static_cast<int>(seed % 20);
    for (int step = 0; step < steps; ++step) {
      chaos.Step();
      CountReached(chaos.scenario(), reached);
      const std::string violation = Violation(chaos.scenario().state());
      ASSERT_EQ(violation, "") << "seed " << seed << " step " << step;
    }
    chaos.Quiesce();
    ASSERT_EQ(chaos.Stuck(), "") << "seed " << seed << "\n" << Describe(chaos.scenario().state());
    ASSERT_EQ(Violation(chaos.scenario().state()), "") << "seed " << seed;
    const Scenario& scenario = chaos.scenario();
    const size_t covered = static_cast<size_t>(seed) % (scenario.log().size() + 1);
    ASSERT_EQ(GoneOn(scenario.log(), covered), "") << "seed " << seed;
    ASSERT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state())) << "seed " << seed;
    events += static_cast<int64_t>(chaos.scenario().log().size());
    for (const auto& [id, job] : chaos.scenario().state().jobs) ++ends[job.state];
  }
  RecordProperty("events", std::to_string(events));
  for (const auto& [name, count] : reached) {
    RecordProperty(absl::StrReplaceAll(name, {{" ", "_"}}), std::to_string(count));
    EXPECT_GT(count, kSequences / 5000) << name;
  }
  // The sequences reach every end.
  for (const v1::JobState state :
       {v1::JOB_STATE_QUEUED, v1::JOB_STATE_RECOVERING, v1::JOB_STATE_SUCCEEDED,
        v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    EXPECT_GT(ends[state], kSequences / 100) << v1::JobState_Name(state);
  }
}

}  // namespace
}  // namespace sherd
