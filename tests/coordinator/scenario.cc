#include "tests/coordinator/scenario.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"

namespace sherd {

namespace {

// Small in all that layouts are computed from.
void LeaveOpen(v1::JobSpec& spec) {
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_layers(1);
  model.set_hidden(8);
  model.set_heads(2);
  model.set_ffn(16);
  model.set_vocab(256);
  model.set_context(8);
  spec.mutable_data()->add_train("text");
  spec.mutable_train()->set_steps(100);
  spec.mutable_train()->set_global_batch(4);
  spec.mutable_train()->set_micro_batch(1);
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_AUTO);
  if (spec.parallel().tensor() == 1) spec.mutable_parallel()->set_tensor(0);
  spec.mutable_parallel()->set_recompute(v1::RECOMPUTE_NONE);
  const std::string dir = spec.checkpoint().dir();
  spec = NormalizeJobSpec(std::move(spec));
  spec.mutable_checkpoint()->set_dir(dir);
}

}  // namespace

v1::JobSpec MakeSpec(const JobRequest& request) {
  v1::JobSpec spec;
  spec.set_name(request.name);
  spec.set_priority(request.priority);
  spec.mutable_elastic()->set_min_workers(request.min_workers);
  spec.mutable_elastic()->set_max_workers(request.max_workers);
  spec.mutable_elastic()->set_replicas(request.replicas);
  spec.mutable_checkpoint()->set_dir(request.dir);
  spec.mutable_parallel()->set_tensor(request.tensor);
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_ZERO3);
  if (request.is_auto) LeaveOpen(spec);
  return spec;
}

v1::DurableEvent Submitted(const JobId& id, const JobRequest& request) {
  v1::DurableEvent event;
  event.mutable_job_submitted()->set_job_id(id.value());
  event.mutable_job_submitted()->set_request_id(
      request.request_id.empty() ? "request of " + id.value() : request.request_id);
  *event.mutable_job_submitted()->mutable_spec() = MakeSpec(request);
  event.mutable_job_submitted()->set_secret("secret of " + id.value());
  return event;
}

v1::DurableEvent CancelRequest(const JobId& id) {
  v1::DurableEvent event;
  event.mutable_cancel_requested()->set_job_id(id.value());
  return event;
}

v1::DurableEvent Joined(const std::string& worker, uint64_t incarnation, const std::string& host) {
  v1::DurableEvent event;
  v1::WorkerJoined* joined = event.mutable_worker_joined();
  joined->set_worker_id(worker);
  joined->set_incarnation(incarnation);
  joined->set_device("cpu:0");
  joined->set_host(host);
  joined->set_shared_memory_domain(host + "/0");
  joined->set_data_address("unix-abstract:" + worker);
  joined->set_network_address("tcp:" + host + ":1");
  joined->set_numerics_fingerprint("avx2");
  return event;
}

v1::DurableEvent Lost(const std::string& worker, uint64_t incarnation, const std::string& cause,
                      int64_t step) {
  v1::DurableEvent event;
  event.mutable_worker_lost()->set_worker_id(worker);
  event.mutable_worker_lost()->set_incarnation(incarnation);
  event.mutable_worker_lost()->set_cause(cause);
  event.mutable_worker_lost()->set_step(step);
  return event;
}

v1::DurableEvent Silent(const std::string& worker, uint64_t incarnation, int64_t step) {
  v1::DurableEvent event = Lost(worker, incarnation, "its lease lapsed", step);
  event.mutable_worker_lost()->set_silent_ms(3000);
  return event;
}

v1::DurableEvent ExpirePatience(const JobRecord& job) {
  v1::DurableEvent event;
  event.mutable_patience_expired()->set_job_id(job.id.value());
  event.mutable_patience_expired()->set_epoch(job.epoch.value());
  return event;
}

v1::DurableEvent Changed(const JobRecord& job, int rank, v1::RankChanged::Milestone milestone) {
  v1::DurableEvent event;
  v1::RankChanged* changed = event.mutable_rank_changed();
  changed->set_job_id(job.id.value());
  changed->set_epoch(job.epoch.value());
  changed->set_rank(rank);
  changed->set_milestone(milestone);
  changed->set_lost_peer(-1);
  changed->set_worker_id(job.ranks.at(rank).worker.value());
  changed->set_incarnation(job.ranks.at(rank).incarnation.value());
  return event;
}

v1::DurableEvent Measured(const JobRecord& job, int rank, double step_seconds) {
  v1::DurableEvent event = Changed(job, rank, kFinished);
  v1::TrialReport& trial = *event.mutable_rank_changed()->mutable_trial();
  trial.set_number(job.trials.number);
  if (job.trials.phase == Trials::Phase::kTrial) {
    trial.set_step_seconds(step_seconds);
    return event;
  }
  trial.set_matmul_flops_per_second(50e9);
  trial.set_copy_bytes_per_second(5e9);
  for (const int64_t bytes : {1 << 10, 1 << 20}) {
    v1::CollectiveFigure& figure = *trial.add_collectives();
    figure.set_op("all_gather");
    figure.set_group_size(static_cast<int64_t>(job.ranks.size()));
    figure.set_stride(1);
    figure.set_bytes(bytes);
    figure.set_seconds(1e-5 + static_cast<double>(bytes) * 1e-9);
  }
  return event;
}

v1::DurableEvent Failed(const JobRecord& job, int rank, const std::string& error, int64_t step,
                        int lost_peer) {
  v1::DurableEvent event = Changed(job, rank, v1::RankChanged::MILESTONE_FAILED);
  event.mutable_rank_changed()->set_error(error);
  event.mutable_rank_changed()->set_step(step);
  event.mutable_rank_changed()->set_lost_peer(lost_peer);
  return event;
}

v1::DurableEvent Unreached(const JobRecord& job, int rank, const std::string& address) {
  v1::DurableEvent event = Failed(job, rank, "the process does not store this rank's shard", 0);
  event.mutable_rank_changed()->set_lost_holder(address);
  return event;
}

v1::DurableEvent ExpireFormation(const JobRecord& job) {
  v1::DurableEvent event;
  event.mutable_formation_expired()->set_job_id(job.id.value());
  event.mutable_formation_expired()->set_epoch(job.epoch.value());
  return event;
}

v1::DurableEvent Progressed(const JobRecord& job, int64_t step) {
  v1::DurableEvent event;
  event.mutable_epoch_progressed()->set_job_id(job.id.value());
  event.mutable_epoch_progressed()->set_epoch(job.epoch.value());
  event.mutable_epoch_progressed()->set_step(step);
  return event;
}

v1::DurableEvent Hung(const JobRecord& job, int rank, const std::string& verdict,
                      int64_t stalled_ms) {
  v1::DurableEvent event;
  v1::HangDetected* hang = event.mutable_hang_detected();
  hang->set_job_id(job.id.value());
  hang->set_epoch(job.epoch.value());
  hang->set_rank(rank);
  hang->set_verdict(verdict);
  hang->set_stalled_ms(stalled_ms);
  return event;
}

v1::DurableEvent Saved(const JobRecord& job, int64_t step, const std::string& path) {
  v1::DurableEvent event;
  event.mutable_checkpoint_saved()->set_job_id(job.id.value());
  event.mutable_checkpoint_saved()->set_epoch(job.epoch.value());
  event.mutable_checkpoint_saved()->set_step(step);
  event.mutable_checkpoint_saved()->set_path(path);
  return event;
}

v1::DurableEvent Drained(const std::string& worker, uint64_t incarnation) {
  v1::DurableEvent event;
  event.mutable_drain_requested()->set_worker_id(worker);
  event.mutable_drain_requested()->set_incarnation(incarnation);
  event.mutable_drain_requested()->set_reason("drained by a user");
  return event;
}

namespace {

// What a worker holds after `step` of the job's epoch: as rank `own`, if it is one, and for others.
google::protobuf::RepeatedPtrField<v1::Holding> HoldingsOf(const JobRecord& job,
                                                           const WorkerId& worker, int own,
                                                           int64_t step) {
  google::protobuf::RepeatedPtrField<v1::Holding> holdings;
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    const std::vector<WorkerId>& holders = job.ranks[rank].holders;
    const bool holds = std::find(holders.begin(), holders.end(), worker) != holders.end();
    if (step == 0 || (rank != own && !holds)) continue;
    v1::Holding& held = *holdings.Add();
    held.set_epoch(job.epoch.value());
    held.set_world(static_cast<int32_t>(job.ranks.size()));
    held.set_owner(rank);
    held.set_step(step);
  }
  return holdings;
}

}  // namespace

v1::DurableEvent Released(const JobRecord& job, int rank, int64_t step) {
  v1::DurableEvent event = Changed(job, rank, kReleased);
  event.mutable_rank_changed()->set_step(step);
  *event.mutable_rank_changed()->mutable_holdings() =
      HoldingsOf(job, job.ranks[rank].worker, rank, step);
  return event;
}

v1::DurableEvent Answered(const JobRecord& job, const CopyHolder& holder, int64_t step) {
  v1::DurableEvent event;
  v1::HoldingsReported* reported = event.mutable_holdings_reported();
  reported->set_worker_id(holder.worker.value());
  reported->set_incarnation(holder.incarnation.value());
  reported->set_job_id(job.id.value());
  reported->set_epoch(job.epoch.value());
  *reported->mutable_holdings() = HoldingsOf(job, holder.worker, /*own=*/-1, step);
  return event;
}

const Actions& Scenario::Do(v1::DurableEvent event) {
  event.set_sequence(state_.sequence + 1);
  event.set_time_unix_ms(++now_);
  actions_ = Apply(event, state_);
  log_.push_back(std::move(event));
  return actions_;
}

void Scenario::JoinWorkers(int count) {
  for (int number = 0; number < count; ++number) Do(Joined(absl::StrCat("w", number), 1));
}

void Scenario::JoinHosts(const std::string& hosts) {
  for (const char host : hosts) Do(Joined(std::string(1, host), 1, std::string(1, host)));
}

JobId Scenario::Submit(const JobRequest& request) {
  const JobId id = NextJobId(state_, request.name);
  Do(Submitted(id, request));
  return id;
}

JobId Scenario::Run(const JobRequest& request) {
  const JobId id = Submit(request);
  ReportAll(id, kReady);
  return id;
}

JobId Scenario::RunOnAll(int workers) {
  JoinWorkers(workers);
  return Run({.min_workers = workers, .max_workers = workers});
}

void Scenario::ReleaseAll(const JobId& id, int64_t step) {
  // The last answer may begin the next epoch.
  const JobRecord before = job(id);
  for (const CopyHolder& holder : before.holders) {
    if (!holder.left && before.holders_asked) Do(Answered(before, holder, step));
  }
  for (int rank = 0; rank < static_cast<int>(before.ranks.size()); ++rank) {
    if (!before.ranks[rank].left) Do(Released(before, rank, step));
  }
  if (before.holders_asked) return;
  for (const CopyHolder& holder : before.holders) {
    if (!holder.left) Do(Answered(before, holder, step));
  }
}

void Scenario::ReportAll(const JobId& id, v1::RankChanged::Milestone milestone) {
  for (int rank = 0; rank < static_cast<int>(job(id).ranks.size()); ++rank) {
    Do(Changed(job(id), rank, milestone));
  }
}

void Scenario::MeasureAll(const JobId& id, double step_seconds) {
  ReportAll(id, kReady);
  // The last one begins the next epoch.
  const JobRecord before = job(id);
  for (int rank = 0; rank < static_cast<int>(before.ranks.size()); ++rank) {
    Do(Measured(before, rank, step_seconds));
  }
}

std::vector<std::string> Scenario::Aborted() const {
  std::vector<std::string> workers;
  for (const SendAbort& abort : ActionsOf<SendAbort>()) workers.push_back(abort.worker.value());
  return workers;
}

std::vector<v1::JobEvent> Scenario::Feed() const {
  std::vector<v1::JobEvent> entries;
  for (const PublishFeed& publish : ActionsOf<PublishFeed>()) entries.push_back(publish.event);
  return entries;
}

std::vector<std::string> Scenario::WorkersOf(const JobId& id) const {
  std::vector<std::string> workers;
  for (const RankState& rank : job(id).ranks) workers.push_back(rank.worker.value());
  return workers;
}

int Scenario::IdleWorkers() const {
  int idle = 0;
  for (const auto& [id, worker] : state_.workers) idle += worker.alive && !worker.seat;
  return idle;
}

State ReplayLog(const std::vector<v1::DurableEvent>& log) {
  State state;
  for (const v1::DurableEvent& event : log) Apply(event, state);
  return state;
}

}  // namespace sherd
