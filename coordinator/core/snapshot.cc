#include "coordinator/core/snapshot.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/snapshot_trials.h"
#include "coordinator/core/stored_epoch.h"

// Every function that writes binds all members of its type by name: it does not compile when one is
// added that it leaves out. That everything written is read is shown by the test.

namespace sherd {
namespace {

using stored_epoch::Read;
using stored_epoch::Write;

v1::StoredSeat Write(const Seat& seat) {
  const auto& [job, epoch, rank] = seat;
  v1::StoredSeat stored;
  stored.set_job_id(job.value());
  stored.set_epoch(epoch.value());
  stored.set_rank(rank);
  return stored;
}

Seat Read(const v1::StoredSeat& stored) {
  return {JobId(stored.job_id()), Epoch(stored.epoch()), stored.rank()};
}

v1::StoredWorker Write(const WorkerState& worker) {
  const auto& [id, incarnation, device, host, shared_memory_domain, data_address, network_address,
               numerics_fingerprint, output_root, memory_bytes, gpu, alive, lost_unix_ms, seat,
               draining, drain_reason, dismissed, retired] = worker;
  v1::StoredWorker stored;
  stored.set_id(id.value());
  stored.set_incarnation(incarnation.value());
  stored.set_device(device);
  stored.set_host(host);
  stored.set_shared_memory_domain(shared_memory_domain);
  stored.set_data_address(data_address);
  stored.set_network_address(network_address);
  stored.set_numerics_fingerprint(numerics_fingerprint);
  stored.set_output_root(output_root);
  stored.set_memory_bytes(memory_bytes);
  if (!gpu.id().empty()) *stored.mutable_gpu() = gpu;
  stored.set_alive(alive);
  stored.set_lost_unix_ms(lost_unix_ms);
  if (seat) *stored.mutable_seat() = Write(*seat);
  stored.set_draining(draining);
  stored.set_drain_reason(drain_reason);
  stored.set_dismissed(dismissed);
  for (const Incarnation past : retired) stored.add_retired(past.value());
  return stored;
}

WorkerState Read(const v1::StoredWorker& stored) {
  WorkerState worker;
  worker.id = WorkerId(stored.id());
  worker.incarnation = Incarnation(stored.incarnation());
  worker.device = stored.device();
  worker.host = stored.host();
  worker.shared_memory_domain = stored.shared_memory_domain();
  worker.data_address = stored.data_address();
  worker.network_address = stored.network_address();
  worker.numerics_fingerprint = stored.numerics_fingerprint();
  worker.output_root = stored.output_root();
  worker.memory_bytes = stored.memory_bytes();
  worker.gpu = stored.gpu();
  worker.alive = stored.alive();
  worker.lost_unix_ms = stored.lost_unix_ms();
  if (stored.has_seat()) worker.seat = Read(stored.seat());
  worker.draining = stored.draining();
  worker.drain_reason = stored.drain_reason();
  worker.dismissed = stored.dismissed();
  for (const uint64_t past : stored.retired()) worker.retired.emplace_back(past);
  return worker;
}

v1::StoredAnswer Write(const WorkerId& worker, const Answer& answer) {
  const auto& [incarnation, holdings] = answer;
  v1::StoredAnswer stored;
  stored.set_worker(worker.value());
  stored.set_incarnation(incarnation.value());
  stored.mutable_holdings()->Add(holdings.begin(), holdings.end());
  return stored;
}

v1::StoredJob Write(const JobRecord& job) {
  const auto& [id, request_id, spec, secret, order, state, reason, waiting, step, submitted_unix_ms,
               ended_unix_ms, weights_path, epoch, ranks, holders, restore, start_known,
               save_and_stop, progressed, announced, times, paused, aborted, holders_asked,
               end_kind, cause, suspicion, complaints, patience, told_copies, answers, restored,
               starts, fruitless, past_causes, high_step, failed_saves, usual_world, checkpoint,
               excluded, broken, told_epoch, silent, trials] = job;
  v1::StoredJob stored;
  stored.set_id(id.value());
  stored.set_request_id(request_id);
  *stored.mutable_spec() = spec;
  stored.set_secret(secret);
  stored.set_order(order);
  stored.set_state(state);
  stored.set_reason(reason);
  stored.set_waiting(static_cast<int32_t>(waiting));
  stored.set_step(step);
  stored.set_submitted_unix_ms(submitted_unix_ms);
  stored.set_ended_unix_ms(ended_unix_ms);
  stored.set_weights_path(weights_path);
  stored.set_epoch(epoch.value());
  for (const RankState& rank : ranks) *stored.add_ranks() = Write(rank);
  for (const CopyHolder& holder : holders) *stored.add_holders() = Write(holder);
  *stored.mutable_restore() = Write(restore);
  stored.set_start_known(start_known);
  stored.set_save_and_stop(save_and_stop);
  stored.set_progressed(progressed);
  stored.set_announced(announced);
  *stored.mutable_times() = Write(times);
  stored.set_paused(paused);
  stored.set_aborted(aborted);
  stored.set_holders_asked(holders_asked);
  stored.set_end_kind(static_cast<int32_t>(end_kind));
  stored.set_cause(cause);
  stored.set_suspicion(suspicion);
  for (const auto& [complainer, peer, holder] : complaints) {
    v1::StoredComplaint& complaint = *stored.add_complaints();
    complaint.set_rank(complainer);
    complaint.set_peer(peer);
    complaint.set_holder(holder.value());
  }
  for (const auto& [worker, answer] : answers) *stored.add_answers() = Write(worker, answer);
  stored.set_restored(restored.value());
  for (const auto& [started, first] : starts) {
    v1::StoredEpochStart& start = *stored.add_starts();
    start.set_epoch(started);
    start.set_step(first);
  }
  stored.set_fruitless(fruitless);
  stored.set_high_step(high_step);
  stored.set_usual_world(usual_world);
  if (checkpoint) {
    const auto& [saved_step, path] = *checkpoint;
    stored.mutable_checkpoint()->set_step(saved_step);
    stored.mutable_checkpoint()->set_path(path);
  }
  for (const WorkerId& worker : excluded) stored.add_excluded(worker.value());
  for (const auto& [from, to] : broken) {
    v1::StoredLink& link = *stored.add_broken();
    link.set_from(from.value());
    link.set_to(to.value());
  }
  stored.set_told_epoch(told_epoch.value());
  *stored.mutable_patience() = Write(patience);
  stored.set_told_copies(told_copies);
  for (const std::string& past : past_causes) stored.add_past_causes(past);
  stored.set_failed_saves(failed_saves);
  for (const auto& [worker, incarnation] : silent) {
    v1::StoredProcess& process = *stored.add_silent();
    process.set_worker(worker.value());
    process.set_incarnation(incarnation.value());
  }
  if (trials.phase != Trials::Phase::kNone) *stored.mutable_trials() = WriteTrials(trials);
  return stored;
}

void ReadEpoch(const v1::StoredJob& stored, JobRecord& job) {
  job.epoch = Epoch(stored.epoch());
  for (const v1::StoredRank& rank : stored.ranks()) job.ranks.push_back(Read(rank));
  for (const v1::StoredCopyHolder& holder : stored.holders()) job.holders.push_back(Read(holder));
  job.restore = Read(stored.restore());
  job.start_known = stored.start_known();
  job.save_and_stop = stored.save_and_stop();
  job.progressed = stored.progressed();
  job.announced = stored.announced();
  job.times = Read(stored.times());
  job.paused = stored.paused();
  job.aborted = stored.aborted();
  job.holders_asked = stored.holders_asked();
  job.end_kind = static_cast<EndKind>(stored.end_kind());
  job.cause = stored.cause();
  job.suspicion = stored.suspicion();
  for (const v1::StoredComplaint& complaint : stored.complaints()) {
    job.complaints.push_back({complaint.rank(), complaint.peer(), WorkerId(complaint.holder())});
  }
  job.patience = Read(stored.patience());
  job.told_copies = stored.told_copies();
}

void ReadPast(const v1::StoredJob& stored, JobRecord& job) {
  for (const v1::StoredAnswer& answer : stored.answers()) {
    job.answers[WorkerId(answer.worker())] = {Incarnation(answer.incarnation()),
                                              {answer.holdings().begin(), answer.holdings().end()}};
  }
  job.restored = Epoch(stored.restored());
  for (const v1::StoredEpochStart& start : stored.starts()) {
    job.starts[start.epoch()] = start.step();
  }
  job.fruitless = static_cast<int>(stored.fruitless());
  job.high_step = stored.high_step();
  job.usual_world = stored.usual_world();
  if (stored.has_checkpoint()) {
    job.checkpoint = SavedCheckpoint{stored.checkpoint().step(), stored.checkpoint().path()};
  }
  for (const std::string& worker : stored.excluded()) job.excluded.emplace(worker);
  for (const v1::StoredLink& link : stored.broken()) {
    job.broken.insert({WorkerId(link.from()), WorkerId(link.to())});
  }
  job.told_epoch = Epoch(stored.told_epoch());
  job.past_causes.assign(stored.past_causes().begin(), stored.past_causes().end());
  job.failed_saves = static_cast<int>(stored.failed_saves());
  for (const v1::StoredProcess& process : stored.silent()) {
    job.silent[WorkerId(process.worker())] = Incarnation(process.incarnation());
  }
  if (stored.has_trials()) job.trials = ReadTrials(stored.trials());
}

JobRecord Read(const v1::StoredJob& stored) {
  JobRecord job;
  job.id = JobId(stored.id());
  job.request_id = stored.request_id();
  job.spec = stored.spec();
  job.secret = stored.secret();
  job.order = stored.order();
  job.state = stored.state();
  job.reason = stored.reason();
  job.waiting = static_cast<Waiting>(stored.waiting());
  job.step = stored.step();
  job.submitted_unix_ms = stored.submitted_unix_ms();
  job.ended_unix_ms = stored.ended_unix_ms();
  job.weights_path = stored.weights_path();
  ReadEpoch(stored, job);
  ReadPast(stored, job);
  return job;
}

// The ids of jobs that `stored` names must be of jobs that it has.
absl::Status CheckNames(const v1::StoredState& stored, const State& state) {
  const auto check = [&](const std::string& id) {
    if (state.jobs.contains(JobId(id))) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("it names job \"", id, "\", which it does not have"));
  };
  for (const std::string& id : stored.queue()) {
    if (absl::Status status = check(id); !status.ok()) return status;
  }
  for (const std::string& id : stored.ended()) {
    if (absl::Status status = check(id); !status.ok()) return status;
  }
  for (const v1::StoredRequest& request : stored.jobs_by_request()) {
    if (absl::Status status = check(request.job_id()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

v1::StoredState WriteState(const State& state) {
  const auto& [jobs, jobs_by_request, queue, ended, workers, submissions, sequence] = state;
  v1::StoredState stored;
  stored.set_format(kStateFormat);
  stored.set_sequence(sequence);
  stored.set_submissions(submissions);
  for (const auto& [id, job] : jobs) *stored.add_jobs() = Write(job);
  for (const auto& [request, job] : jobs_by_request) {
    v1::StoredRequest& stored_request = *stored.add_jobs_by_request();
    stored_request.set_request_id(request);
    stored_request.set_job_id(job.value());
  }
  for (const JobId& id : queue) stored.add_queue(id.value());
  for (const JobId& id : ended) stored.add_ended(id.value());
  for (const auto& [id, worker] : workers) *stored.add_workers() = Write(worker);
  return stored;
}

absl::StatusOr<State> ReadState(const v1::StoredState& stored) {
  if (stored.format() < kOldestStateFormat || stored.format() > kStateFormat) {
    return absl::DataLossError(
        absl::StrCat("it has format ", stored.format(), ", and this version knows ", kStateFormat));
  }
  State state;
  state.sequence = stored.sequence();
  state.submissions = stored.submissions();
  for (const v1::StoredJob& job : stored.jobs()) state.jobs[JobId(job.id())] = Read(job);
  for (const v1::StoredRequest& request : stored.jobs_by_request()) {
    state.jobs_by_request[request.request_id()] = JobId(request.job_id());
  }
  for (const std::string& id : stored.queue()) state.queue.emplace_back(id);
  for (const std::string& id : stored.ended()) state.ended.emplace_back(id);
  for (const v1::StoredWorker& worker : stored.workers()) {
    state.workers[WorkerId(worker.id())] = Read(worker);
  }
  if (absl::Status status = CheckNames(stored, state); !status.ok()) return status;
  return state;
}

}  // namespace sherd
