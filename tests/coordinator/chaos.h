#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/reducer.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {

// Draws events as they may reach the log, sensible and not.
class Chaos {
 public:
  explicit Chaos(uint64_t seed) : random_(seed) {}

  void Step() {
    switch (Draw(17)) {
      case 0:
        return Submit();
      case 1:
        return Cancel();
      case 2:
        return Join();
      case 3:
        return Lose();
      case 4:
        return Expire();
      case 5:
        return Drain();
      case 6:
        return Progress();
      case 7:
        return AnswerAll();
      case 8:
        return DrainJob();
      case 9:
        return ExpireJobPatience();
      case 10:
        return FreezeJob();
      default:
        return Report();
    }
  }

  // Every lost worker is known as such; every live one answers what it was told.
  void Quiesce() {
    // A job of strategy auto measures many times, and each of its Assigns may be lost.
    for (int round = 0; round < 2000; ++round) {
      const int64_t before = scenario_.state().sequence;
      AnswerHolders();
      for (const WorkerId& id : BusyWorkers()) Answer(*FindWorker(scenario_.state(), id));
      EndDismissed();
      if (scenario_.state().sequence == before) ExpireAllPatience();
      if (scenario_.state().sequence == before) return;
    }
    ADD_FAILURE() << "never comes to rest";
  }

  // What is stuck after Quiesce; "" when nothing is.
  std::string Stuck() const {
    for (const auto& [id, job] : scenario_.state().jobs) {
      if (IsTerminal(job.state)) continue;
      if (HoldsWorkers(job.state)) return absl::StrCat(id.value(), " does not end");
      if (!PlaceableNowhere(job)) return absl::StrCat(id.value(), " waits with idle workers");
    }
    for (const auto& [id, worker] : scenario_.state().workers) {
      if (worker.seat) return absl::StrCat(id.value(), " stays busy");
      if (worker.alive && worker.draining && !HoldsWhatIsWanted(id)) {
        return absl::StrCat(id.value(), " is not let go");
      }
    }
    return "";
  }

  const Scenario& scenario() const { return scenario_; }

 private:
  static constexpr int kWorkers = 5;

  uint64_t Draw(uint64_t bound) { return random_() % bound; }

  // It leaves only with the state that nobody else could take over.
  bool HoldsWhatIsWanted(const WorkerId& id) const {
    for (const auto& [name, job] : scenario_.state().jobs) {
      const auto answer = job.answers.find(id);
      if (job.state != v1::JOB_STATE_RECOVERING || answer == job.answers.end()) continue;
      if (!answer->second.holdings.empty()) return true;
    }
    return false;
  }

  std::vector<WorkerId> BusyWorkers() const {
    std::vector<WorkerId> busy;
    for (const auto& [id, worker] : scenario_.state().workers) {
      if (worker.alive && worker.seat) busy.push_back(id);
    }
    return busy;
  }

  const JobRecord* AnyJob() {
    const auto& jobs = scenario_.state().jobs;
    if (jobs.empty()) return nullptr;
    return &std::next(jobs.begin(), static_cast<int64_t>(Draw(jobs.size())))->second;
  }

  double StepSeconds() { return 1e-3 * static_cast<double>(1 + Draw(5)); }

  std::string AnyWorker() { return absl::StrCat("w", Draw(kWorkers)); }

  void Submit() {
    const auto tensor = static_cast<int64_t>(1 + Draw(2));
    const auto least = static_cast<int64_t>(1 + Draw(4));
    const int64_t most = Draw(2) == 0 ? 0 : (least + tensor) / tensor * tensor;
    // Some are retries.
    const std::string request = Draw(5) == 0 ? "again" : "";
    scenario_.Submit({.name = "j",
                      .min_workers = least,
                      .max_workers = most,
                      .tensor = tensor,
                      .priority = static_cast<int32_t>(Draw(3)),
                      .replicas = static_cast<int64_t>(Draw(3)),
                      .request_id = request,
                      .dir = Draw(2) == 0 ? "out" : "",
                      .is_auto = Draw(24) == 0});
  }

  void Cancel() {
    const JobRecord* job = AnyJob();
    if (job != nullptr) scenario_.Do(CancelRequest(job->id));
  }

  void Join() {
    const std::string id = AnyWorker();
    // Sometimes an earlier life, sometimes the same, mostly the next.
    const uint64_t last = lives_[id];
    const uint64_t incarnation =
        Draw(4) == 0 && last > 0 ? 1 + Draw(last) : (lives_[id] = last + 1);
    v1::DurableEvent event = Joined(id, incarnation, Draw(4) == 0 ? "other" : "host");
    // A copy may be brought to some, and read from them.
    if (Draw(8) == 0) event.mutable_worker_joined()->clear_network_address();
    if (Draw(4) == 0) Claim(*event.mutable_worker_joined());
    scenario_.Do(std::move(event));
  }

  // It says that it works as some rank: its own, another's, or one of nothing.
  void Claim(v1::WorkerJoined& joined) {
    const JobRecord* job = AnyJob();
    joined.set_job_id(job == nullptr || Draw(8) == 0 ? "forgotten-1" : job->id.value());
    joined.set_epoch(static_cast<int64_t>(Draw(3)));
    const int32_t wild[] = {-1, 1 << 16, 1 << 30};
    joined.set_rank(Draw(4) == 0 ? wild[Draw(3)] : static_cast<int32_t>(Draw(5)));
  }

  void Lose() {
    const std::string id = AnyWorker();
    const uint64_t life = lives_[id] - Draw(2);
    scenario_.Do(Draw(3) == 0 ? Silent(id, life, 3)
                              : Lost(id, life, "killed by signal 9 (SIGKILL)", 3));
  }

  void ExpireJobPatience() {
    const JobRecord* job = AnyJob();
    if (job != nullptr) scenario_.Do(ExpirePatience(*job));
  }

  void ExpireAllPatience() {
    std::vector<v1::DurableEvent> ends;
    for (const auto& [id, job] : scenario_.state().jobs) {
      if (job.state != v1::JOB_STATE_RECOVERING) continue;
      if (job.patience.what != Patience::For::kNothing) ends.push_back(ExpirePatience(job));
    }
    for (v1::DurableEvent& end : ends) scenario_.Do(std::move(end));
  }

  // All that works for a job freezes for a while; some of it is back soon.
  void FreezeJob() {
    const JobRecord* job = AnyJob();
    if (job == nullptr || job->state != v1::JOB_STATE_RUNNING) return;
    const JobRecord ended = *job;
    scenario_.Do(Progressed(ended, ended.step + 1));
    for (const RankState& rank : ended.ranks) {
      scenario_.Do(Silent(rank.worker.value(), rank.incarnation.value(), ended.step + 1));
    }
    for (int rank = 0; rank < static_cast<int>(ended.ranks.size()); ++rank) {
      const RankState& frozen = ended.ranks[rank];
      if (Draw(5) == 0) continue;
      const WorkerState* worker = FindWorker(scenario_.state(), frozen.worker);
      if (worker == nullptr) continue;
      v1::DurableEvent back =
          Joined(frozen.worker.value(), frozen.incarnation.value(), worker->host);
      back.mutable_worker_joined()->set_job_id(ended.id.value());
      back.mutable_worker_joined()->set_epoch(ended.epoch.value());
      back.mutable_worker_joined()->set_rank(rank);
      scenario_.Do(std::move(back));
      scenario_.Do(Released(ended, rank, ended.step + 1));
    }
  }

  void Expire() {
    const JobRecord* job = AnyJob();
    if (job != nullptr) Expire(*job);
  }

  void Expire(const JobRecord& job) {
    if (Draw(2) == 0) {
      scenario_.Do(ExpireFormation(job));
    } else {
      scenario_.Do(Hung(job, 0, "rank 0 hangs", 30'000));
    }
  }

  void Drain() {
    const std::string id = AnyWorker();
    if (Draw(3) == 0) scenario_.Do(Drained(id, lives_[id]));
  }

  // A host with all that works for a job goes down for maintenance, sometimes.
  void DrainJob() {
    const JobRecord* job = AnyJob();
    if (job == nullptr || job->state != v1::JOB_STATE_RUNNING || Draw(3) == 0) return;
    const JobId id = job->id;
    const std::vector<RankState> ranks = job->ranks;
    scenario_.Do(Progressed(*job, job->step + 1));
    for (const RankState& rank : ranks) {
      scenario_.Do(Drained(rank.worker.value(), rank.incarnation.value()));
    }
    if (scenario_.job(id).state != v1::JOB_STATE_RECOVERING) return;
    scenario_.ReleaseAll(id, scenario_.job(id).step);
  }

  void Progress() {
    const JobRecord* job = AnyJob();
    if (job == nullptr || job->state != v1::JOB_STATE_RUNNING) return;
    if (Draw(4) == 0) {
      scenario_.Do(Saved(*job, job->step + 1, "step-" + absl::StrCat(job->step + 1)));
    } else {
      scenario_.Do(Progressed(*job, job->step + 1));
    }
  }

  // Some job's epoch ends as it should.
  void AnswerAll() {
    const JobRecord* job = AnyJob();
    if (job == nullptr || job->state != v1::JOB_STATE_RECOVERING) return;
    scenario_.ReleaseAll(job->id, job->step);
  }

  void AnswerHolders() {
    std::vector<v1::DurableEvent> answers;
    for (const auto& [id, job] : scenario_.state().jobs) {
      if (job.state != v1::JOB_STATE_RECOVERING || !job.holders_asked) continue;
      for (const CopyHolder& holder : job.holders) {
        if (!holder.left) answers.push_back(Answered(job, holder, job.step));
      }
    }
    for (v1::DurableEvent& answer : answers) scenario_.Do(std::move(answer));
  }

  void EndDismissed() {
    std::vector<v1::DurableEvent> ends;
    for (const auto& [id, worker] : scenario_.state().workers) {
      if (!worker.alive || !worker.dismissed) continue;
      ends.push_back(
          Lost(id.value(), worker.incarnation.value(), "its process exited with code 0"));
    }
    for (v1::DurableEvent& end : ends) scenario_.Do(std::move(end));
  }

  void Report() {
    const JobRecord* job = AnyJob();
    if (job == nullptr || job->ranks.empty()) return Join();
    const int rank = static_cast<int>(Draw(job->ranks.size()));
    // READY twice as often, so that jobs get somewhere.
    constexpr v1::RankChanged::Milestone kMilestones[] = {
        v1::RankChanged::MILESTONE_READY, v1::RankChanged::MILESTONE_READY,
        v1::RankChanged::MILESTONE_FINISHED, v1::RankChanged::MILESTONE_FAILED,
        v1::RankChanged::MILESTONE_RELEASED};
    v1::DurableEvent event = Changed(*job, rank, kMilestones[Draw(5)]);
    v1::RankChanged* changed = event.mutable_rank_changed();
    const bool measures = IsUndecided(*job) && Draw(4) != 0;
    if (measures && changed->milestone() == v1::RankChanged::MILESTONE_FINISHED) {
      *changed->mutable_trial() = Measured(*job, rank, StepSeconds()).rank_changed().trial();
    }
    if (Draw(8) == 0) changed->set_final(true);
    if (Draw(2) == 0) {
      changed->set_lost_peer(static_cast<int32_t>(Draw(job->ranks.size())));
    } else if (!job->ranks[rank].holders.empty()) {
      changed->set_lost_holder(AddressOfHolder(job->ranks[rank]));
    }
    if (Draw(8) == 0) changed->set_epoch(changed->epoch() + static_cast<int64_t>(Draw(3)) - 1);
    if (Draw(8) == 0) changed->set_incarnation(changed->incarnation() + Draw(3) - 1);
    if (Draw(16) == 0) changed->set_rank(static_cast<int32_t>(Draw(12)) - 2);
    scenario_.Do(std::move(event));
  }

  std::string AddressOfHolder(const RankState& rank) {
    const State& state = scenario_.state();
    const WorkerState* own = FindWorker(state, rank.worker);
    const WorkerState* holder = FindWorker(state, rank.holders[Draw(rank.holders.size())]);
    return own == nullptr || holder == nullptr ? "tcp:nowhere:1" : AddressFor(*own, *holder);
  }

  // An Abort names its rank: also one whose Assign was lost on the way is answered.
  void Answer(const WorkerState& worker) {
    if (!worker.seat) return;
    const Seat seat = *worker.seat;
    const JobRecord* job = FindJob(scenario_.state(), seat.job);
    const bool current = job != nullptr && IsUnderway(job->state) && job->epoch == seat.epoch &&
                         seat.rank < static_cast<int>(job->ranks.size()) &&
                         job->ranks[seat.rank].worker == worker.id;
    if (!current) return Tell(worker, seat, v1::RankChanged::MILESTONE_RELEASED);
    if (job->state == v1::JOB_STATE_RECOVERING) {
      scenario_.Do(Released(*job, seat.rank, job->step));
      return;
    }
    // Its Assign was lost, so that it leaves what it never began.
    if (Draw(8) == 0) return Tell(worker, seat, v1::RankChanged::MILESTONE_RELEASED);
    Tell(worker, seat, v1::RankChanged::MILESTONE_READY);
    if (job->state != v1::JOB_STATE_RUNNING || job->epoch != seat.epoch) return;
    if (IsUndecided(*job)) {
      scenario_.Do(Measured(*job, seat.rank, StepSeconds()));
      return;
    }
    if (!job->save_and_stop) return Tell(worker, seat, v1::RankChanged::MILESTONE_FINISHED);
    scenario_.Do(Saved(*job, job->restore.step, "saved"));
    scenario_.Do(Released(*job, seat.rank, job->step));
  }

  void Tell(const WorkerState& worker, const Seat& seat, v1::RankChanged::Milestone milestone) {
    v1::DurableEvent event;
    v1::RankChanged* changed = event.mutable_rank_changed();
    changed->set_job_id(seat.job.value());
    changed->set_epoch(seat.epoch.value());
    changed->set_rank(seat.rank);
    changed->set_milestone(milestone);
    changed->set_lost_peer(-1);
    changed->set_worker_id(worker.id.value());
    changed->set_incarnation(worker.incarnation.value());
    scenario_.Do(std::move(event));
  }

  // Independent of the placement code: all live workers together, in whole tensor-parallel groups
  // by domain, are too few; or none can read what is held.
  bool PlaceableNowhere(const JobRecord& job) const {
    if (absl::StrContains(job.reason, "waits for workers that can read")) return true;
    std::map<std::string, int64_t> live;
    std::set<std::string> hidden;
    for (const auto& [id, worker] : scenario_.state().workers) {
      if (worker.alive && !worker.draining) ++live[worker.shared_memory_domain];
      if (worker.alive && worker.network_address.empty()) {
        hidden.insert(worker.shared_memory_domain);
      }
    }
    const v1::ParallelSpec& parallel = IsUndecided(job) ? job.trials.asked : job.spec.parallel();
    const int64_t tensor = std::max<int64_t>(1, parallel.tensor());
    const int64_t most = job.spec.elastic().max_workers();
    int64_t usable = 0;
    int64_t together = 0;
    for (const auto& [domain, workers] : live) {
      const int64_t whole = workers / tensor * tensor;
      usable = std::max(usable, whole);
      if (!hidden.contains(domain)) together += whole;
    }
    usable = std::max(usable, together);
    if (most > 0) usable = std::min(usable, most / tensor * tensor);
    return usable < std::max(job.spec.elastic().min_workers(), tensor);
  }

  std::mt19937_64 random_;
  Scenario scenario_;
  std::map<std::string, uint64_t> lives_;
};

}  // namespace sherd
