#include "coordinator/runtime/fleet.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/printable_text.h"
#include "coordinator/runtime/report_rules.h"
#include "coordinator/runtime/reunion.h"
#include "coordinator/runtime/worker_claims.h"

namespace sherd {
namespace {

std::string BreakCause(absl::Duration window) {
  return absl::StrCat("its session broke and was not resumed within ",
                      absl::FormatDuration(window));
}

constexpr size_t kMostReasonBytes = 256;

bool IsRetired(const WorkerState& worker, Incarnation incarnation) {
  return std::count(worker.retired.begin(), worker.retired.end(), incarnation) > 0;
}

}  // namespace

Fleet::Fleet(const FleetOptions& options, const Clock& clock, Journal& journal, TimerQueue& timers,
             FleetEvents events)
    : options_(options),
      clock_(clock),
      journal_(journal),
      timers_(timers),
      events_(std::move(events)),
      intake_(clock, journal, events_.append) {}

void Fleet::Recover() {
  for (const Acknowledgement& past : journal_.recovered_acknowledgements()) {
    Session& session = sessions_[past.worker];
    session.incarnation = past.incarnation;
    session.acknowledged = past.sequence;
  }
  for (const auto& [id, worker] : journal_.state().workers) {
    if (worker.alive) Renew(id);
  }
}

void Fleet::Connect(const v1::Hello& hello, std::shared_ptr<WorkerLink> link) {
  if (absl::Status status = CheckHello(hello); !status.ok()) return link->Close(status);
  const WorkerId id(hello.worker_id());
  const Incarnation incarnation(hello.incarnation());
  const WorkerState* known = FindWorker(journal_.state(), id);
  if (known != nullptr && IsRetired(*known, incarnation)) {
    return link->Close(absl::AlreadyExistsError(absl::StrCat(
        "a newer process of worker ", id.value(), " has taken its place; this one must end")));
  }
  const bool replaces = known != nullptr && known->alive && known->incarnation != incarnation;
  if (replaces && (HasStream(id) || WorksIn(journal_.state(), *known))) {
    return AwaitExit(hello, std::move(link));
  }
  Admit(hello, std::move(link));
}

void Fleet::AwaitExit(const v1::Hello& hello, std::shared_ptr<WorkerLink> link) {
  const WorkerId id(hello.worker_id());
  Newcomer& newcomer = newcomers_[id];
  if (newcomer.link != nullptr) {
    newcomer.link->Close(absl::AlreadyExistsError("a newer stream of this worker was opened"));
  }
  // One that only opened another stream has waited since its first.
  if (newcomer.hello.incarnation() != hello.incarnation()) newcomer.since = clock_.Now();
  newcomer.hello = hello;
  newcomer.link = link;
  // Else the old stream's silence, break or next message decides.
  if (HasStream(id)) return;
  timers_.At(clock_.Now() + options_.takeover_window, [this, id, link = std::move(link)] {
    const auto found = newcomers_.find(id);
    if (found == newcomers_.end() || found->second.link != link || HasStream(id)) return;
    AdmitNewcomer(id);
  });
}

void Fleet::RefuseNewcomer(const WorkerId& id) {
  const auto found = newcomers_.find(id);
  if (found == newcomers_.end() || clock_.Now() - found->second.since < CheckInterval()) return;
  found->second.link->Close(absl::AlreadyExistsError(
      absl::StrCat("worker ", id.value(), " is another process, which is alive")));
  newcomers_.erase(found);
}

bool Fleet::HasStream(const WorkerId& id) const {
  const auto found = sessions_.find(id);
  return found != sessions_.end() && found->second.link != nullptr;
}

void Fleet::AdmitNewcomer(const WorkerId& id) {
  const auto found = newcomers_.find(id);
  if (found == newcomers_.end()) return;
  const Newcomer newcomer = std::move(found->second);
  newcomers_.erase(found);
  if (const WorkerState* worker = FindWorker(journal_.state(), id); worker != nullptr) {
    Lose(id, worker->incarnation, "a new process took the worker's place");
  }
  Admit(newcomer.hello, newcomer.link);
}

void Fleet::Admit(const v1::Hello& hello, std::shared_ptr<WorkerLink> link) {
  const WorkerId id(hello.worker_id());
  const Incarnation incarnation(hello.incarnation());
  const WorkerState* known = FindWorker(journal_.state(), id);
  // One that speaks of what the log does not know is told to stop, as one that was given up.
  const bool resumed = known != nullptr && known->alive && known->incarnation == incarnation &&
                       !SpeaksBeyond(journal_.state(), *known, hello);
  Session& session = sessions_[id];
  const bool replaces = session.link != nullptr;
  if (replaces) {
    workers_by_link_.erase(session.link.get());
    session.link->Close(absl::AlreadyExistsError("a newer stream of this worker was opened"));
  }
  if (session.incarnation != incarnation) session.acknowledged = 0;
  session.incarnation = incarnation;
  session.link = link;
  session.fresh = true;
  workers_by_link_[link.get()] = id;

  v1::SessionResponse welcome;
  welcome.set_acknowledged(session.acknowledged);
  welcome.mutable_welcome()->set_heartbeat_interval_ms(absl::ToInt64Milliseconds(CheckInterval()));
  Send(id, incarnation, std::move(welcome));
  if (!resumed) Join(hello);
  Renew(id);
  if (resumed) {
    const State& state = journal_.state();
    const Progress progress =
        known->seat ? journal_.feed().ProgressOf(known->seat->job) : Progress{};
    for (v1::SessionResponse& missed :
         MissedMessages(state, *known, hello, assignments_, {progress.step, progress.eval_step},
                        absl::ToUnixMillis(clock_.Now()))) {
      Send(id, incarnation, std::move(missed));
    }
    if (OwesReport(state, *FindWorker(state, id), hello)) AwaitLastReport(id);
  }
  // What was asked on the old stream is not answered on the new one.
  if (replaces) events_.disconnected(id);
}

void Fleet::Join(const v1::Hello& hello) {
  v1::DurableEvent event;
  v1::WorkerJoined* joined = event.mutable_worker_joined();
  joined->set_worker_id(hello.worker_id());
  joined->set_incarnation(hello.incarnation());
  joined->set_device(hello.device());
  joined->set_host(hello.host());
  joined->set_shared_memory_domain(hello.shared_memory_domain());
  joined->set_data_address(hello.data_address());
  joined->set_network_address(hello.network_address());
  joined->set_numerics_fingerprint(hello.numerics_fingerprint());
  joined->set_output_root(hello.output_root());
  joined->set_memory_bytes(hello.memory_bytes());
  if (hello.has_gpu()) *joined->mutable_gpu() = hello.gpu();
  joined->set_job_id(hello.job_id());
  joined->set_epoch(hello.epoch());
  joined->set_rank(hello.rank());
  events_.append(std::move(event));
}

void Fleet::Disconnect(const WorkerLink* link) {
  std::erase_if(newcomers_, [link](const auto& entry) { return entry.second.link.get() == link; });
  const auto found = workers_by_link_.find(link);
  if (found == workers_by_link_.end()) return;
  const WorkerId id = found->second;
  workers_by_link_.erase(found);
  Session& session = sessions_.at(id);
  session.link = nullptr;
  ++session.breaks;
  IfStillBroken(id, options_.resume_window, [this, id] { Suspect(id); });
  IfStillBroken(id, options_.resume_window + options_.exit_window, [this, id] {
    Lose(id, sessions_.at(id).incarnation, BreakCause(options_.resume_window));
  });
  events_.disconnected(id);
}

void Fleet::IfStillBroken(const WorkerId& id, absl::Duration delay, std::function<void()> task) {
  const int64_t break_number = sessions_.at(id).breaks;
  timers_.At(clock_.Now() + delay, [this, id, break_number, task = std::move(task)] {
    const auto entry = sessions_.find(id);
    if (entry == sessions_.end() || entry->second.link != nullptr) return;
    if (entry->second.breaks == break_number) task();
  });
}

void Fleet::Suspect(const WorkerId& id) {
  const WorkerState* worker = FindWorker(journal_.state(), id);
  const Incarnation incarnation = sessions_.at(id).incarnation;
  if (worker == nullptr || !worker->alive || worker->incarnation != incarnation) return;
  const std::string cause = BreakCause(options_.resume_window);
  const auto& jobs = journal_.state().jobs;
  const bool named = std::any_of(jobs.begin(), jobs.end(), [worker](const auto& entry) {
    return IsUnderway(entry.second.state) && IsNamed(entry.second, *worker);
  });
  if (!named) return Lose(id, incarnation, cause);
  // To the job it is as if a peer had lost this rank.
  if (worker->seat) FailRank(id, cause, worker->seat->rank);
}

void Fleet::FailRank(const WorkerId& id, const std::string& error, int lost_peer) {
  const WorkerState* worker = FindWorker(journal_.state(), id);
  if (worker == nullptr || !WorksIn(journal_.state(), *worker)) return;
  v1::DurableEvent event;
  v1::RankChanged* failed = event.mutable_rank_changed();
  failed->set_milestone(v1::RankChanged::MILESTONE_FAILED);
  failed->set_job_id(worker->seat->job.value());
  failed->set_epoch(worker->seat->epoch.value());
  failed->set_rank(worker->seat->rank);
  failed->set_worker_id(id.value());
  failed->set_incarnation(worker->incarnation.value());
  failed->set_step(journal_.feed().ProgressOf(worker->seat->job).step);
  failed->set_error(error);
  failed->set_lost_peer(lost_peer);
  events_.append(std::move(event));
}

void Fleet::AwaitLastReport(const WorkerId& id) {
  const std::optional<Seat> seat = FindWorker(journal_.state(), id)->seat;
  const std::shared_ptr<WorkerLink> link = sessions_.at(id).link;
  timers_.At(clock_.Now() + options_.failure_detection, [this, id, seat, link] {
    const WorkerState* worker = FindWorker(journal_.state(), id);
    if (worker == nullptr || worker->seat != seat || sessions_.at(id).link != link) return;
    FailRank(id, "its worker knows of no work, and how it ended is lost", /*lost_peer=*/-1);
  });
}

void Fleet::ReportExit(const v1::ReportExitRequest& request) {
  const WorkerId id(request.worker_id());
  const Incarnation incarnation(request.incarnation());
  const WorkerState* worker = FindWorker(journal_.state(), id);
  if (!CheckExit(request).ok() || worker == nullptr || worker->incarnation != incarnation) return;
  Lose(id, incarnation, ExitCause(request));
}

void Fleet::Lose(const WorkerId& id, Incarnation incarnation, const std::string& cause,
                 absl::Duration silence) {
  const WorkerState* worker = FindWorker(journal_.state(), id);
  if (worker == nullptr || !worker->alive || worker->incarnation != incarnation) return;
  leases_.Remove(id);
  v1::DurableEvent event;
  event.mutable_worker_lost()->set_worker_id(id.value());
  event.mutable_worker_lost()->set_incarnation(incarnation.value());
  event.mutable_worker_lost()->set_cause(cause);
  event.mutable_worker_lost()->set_silent_ms(absl::ToInt64Milliseconds(silence));
  for (const auto& [job, record] : journal_.state().jobs) {
    if (!IsUnderway(record.state) || !IsNamed(record, *worker)) continue;
    event.mutable_worker_lost()->set_step(journal_.feed().ProgressOf(job).step);
    if (worker->seat && worker->seat->job == job) break;
  }
  events_.append(std::move(event));
  if (HasStream(id)) {
    // Should it live after all, it says hello again and is told what became of its job.
    Session& session = sessions_.at(id);
    workers_by_link_.erase(session.link.get());
    journal_.AfterCommit([link = std::exchange(session.link, nullptr), cause] {
      link->Close(absl::UnavailableError(absl::StrCat("the worker was given up: ", cause)));
    });
    events_.disconnected(id);
  }
  AdmitNewcomer(id);
}

void Fleet::GiveUp(const WorkerId& id, Incarnation incarnation, const std::string& cause) {
  Send(id, incarnation, ShutdownMessage(cause));
  Lose(id, incarnation, cause);
}

void Fleet::Send(const WorkerId& id, Incarnation incarnation, v1::SessionResponse message) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.link == nullptr) return;
  if (found->second.incarnation != incarnation) return;
  journal_.AfterCommit([link = found->second.link, message = std::move(message)]() mutable {
    link->Send(std::move(message));
  });
}

absl::Duration Fleet::LeaseOf(const WorkerId& id) const {
  const WorkerState* worker = FindWorker(journal_.state(), id);
  absl::Duration ttl = options_.failure_detection;
  if (worker != nullptr && worker->seat) {
    const JobRecord* job = FindJob(journal_.state(), worker->seat->job);
    const int64_t own = job == nullptr ? 0 : job->spec.elastic().failure_detection_ms();
    // A lease must outlive a few heartbeats, whose interval was told at Welcome.
    if (own > 0) ttl = std::max(absl::Milliseconds(own), 3 * CheckInterval());
  }
  return ttl;
}

void Fleet::Renew(const WorkerId& id) { leases_.Renew(id, clock_.Now(), LeaseOf(id)); }

void Fleet::CheckLeases(absl::Time now) {
  for (const WorkerId& id : leases_.Expire(now)) {
    const WorkerState* worker = FindWorker(journal_.state(), id);
    if (worker == nullptr) continue;
    Lose(id, worker->incarnation, "its lease lapsed: it was silent for too long", LeaseOf(id));
  }
  std::erase_if(sessions_, [this](const auto& entry) {
    return entry.second.link == nullptr && FindWorker(journal_.state(), entry.first) == nullptr;
  });
}

void Fleet::Receive(const WorkerLink* link, const v1::SessionRequest& request) {
  const auto found = workers_by_link_.find(link);
  if (found == workers_by_link_.end()) return;
  const WorkerId id = found->second;
  Renew(id);
  RefuseNewcomer(id);
  if (request.has_inspection()) return events_.inspected(id, request.inspection());
  if (request.has_position()) return events_.located(id, request.position());
  if (!request.has_report() && !request.has_holdings() && !request.has_leaving()) return;
  Session& session = sessions_.at(id);
  acknowledgements_due_.insert(id);
  // Sent again after a broken stream: it has had its effect.
  if (request.sequence() <= session.acknowledged) return;
  const absl::Status counted =
      CheckSequence(request.sequence(), session.acknowledged, std::exchange(session.fresh, false));
  if (!counted.ok()) return FailRank(id, std::string(counted.message()), /*lost_peer=*/-1);
  session.acknowledged = request.sequence();
  if (request.has_leaving()) {
    return Drain(id, PrintableText(request.leaving().reason(), kMostReasonBytes));
  }
  if (request.has_holdings()) return TakeHoldings(id, session.incarnation, request.holdings());
  const absl::Status taken = intake_.Take(id, session.incarnation, request.report());
  if (!taken.ok()) FailRank(id, std::string(taken.message()), /*lost_peer=*/-1);
}

void Fleet::TakeHoldings(const WorkerId& id, Incarnation incarnation,
                         const v1::HoldingsReport& report) {
  v1::DurableEvent event;
  v1::HoldingsReported* reported = event.mutable_holdings_reported();
  reported->set_worker_id(id.value());
  reported->set_incarnation(incarnation.value());
  reported->set_job_id(report.job_id());
  reported->set_epoch(report.epoch());
  *reported->mutable_holdings() = report.holdings();
  events_.append(std::move(event));
}

void Fleet::Drain(const WorkerId& id, const std::string& reason) {
  const WorkerState* worker = FindWorker(journal_.state(), id);
  if (worker == nullptr || !worker->alive || worker->draining) return;
  v1::DurableEvent event;
  event.mutable_drain_requested()->set_worker_id(id.value());
  event.mutable_drain_requested()->set_incarnation(worker->incarnation.value());
  event.mutable_drain_requested()->set_reason(reason);
  events_.append(std::move(event));
}

void Fleet::FlushAcknowledgements() {
  for (const WorkerId& id : std::exchange(acknowledgements_due_, {})) {
    const Session& session = sessions_.at(id);
    journal_.Acknowledge({id, session.incarnation, session.acknowledged});
    v1::SessionResponse message;
    message.set_acknowledged(session.acknowledged);
    Send(id, session.incarnation, std::move(message));
  }
}

std::vector<WorkerId> Fleet::Connected() const {
  std::vector<WorkerId> connected;
  for (const auto& [id, session] : sessions_) {
    if (session.link != nullptr) connected.push_back(id);
  }
  return connected;
}

void Fleet::Stop() {
  for (auto& [id, newcomer] : std::exchange(newcomers_, {})) {
    newcomer.link->Close(absl::UnavailableError("the coordinator stops; connect again later"));
  }
  workers_by_link_.clear();
  for (auto& [id, session] : sessions_) {
    if (session.link == nullptr) continue;
    session.link->Close(absl::UnavailableError("the coordinator stops; connect again later"));
    session.link = nullptr;
  }
}

}  // namespace sherd
