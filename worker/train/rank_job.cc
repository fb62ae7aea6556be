#include "worker/train/rank_job.h"

#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "kernels/cpu/cpu_ops.h"
#include "plan/device_scratch.h"
#include "plan/job_spec.h"
#include "plan/model_flops.h"
#include "plan/schedule.h"
#include "worker/data/job_tokens.h"
#include "worker/train/lineage.h"
#include "worker/train/measured_ledger.h"
#include "worker/train/predicted_ledger.h"
#include "worker/train/process_memory.h"
#include "worker/train/rank_state.h"
#include "worker/train/restore.h"

namespace sherd {

absl::Status JobData::ReadTrain(int64_t step, int64_t index, int32_t* inputs, int32_t* targets) {
  return dataset_.train.FillMicroBatch(step, index, inputs, targets);
}

absl::Status JobData::ReadEval(int64_t index, int32_t* inputs, int32_t* targets) {
  return dataset_.eval->FillMicroBatch(index, inputs, targets);
}

int64_t JobData::eval_micro_batches() const {
  return dataset_.eval.has_value() ? dataset_.eval->micro_batches() : 0;
}

namespace {

RankArenas ArenasOf(const RankPlan& plan, const RankMesh& mesh, Accelerator* accelerator) {
  RankArenas arenas;
  if (mesh.sums_on_device()) arenas.sums = &accelerator->streams()->compute();
  arenas.sharers = mesh.sharers().arena();
  if (mesh.replicas() != nullptr) arenas.replicas = mesh.replicas()->arena();
  if (mesh.tensor() != nullptr) {
    // Behind the activations.
    const int64_t shares = ShareBytes(plan, plan.part().place.degree);
    arenas.tensor = mesh.tensor()->arena() + (mesh.tensor()->arena_bytes() - shares);
  }
  if (SumsOverKvCopies(plan)) arenas.kv_copies = mesh.Sharing(plan.part().kv_copies).arena();
  return arenas;
}

VersionSlots SlotsOf(const HoldingSegment* segment) {
  if (segment == nullptr) return {};
  return {segment->slot(0), segment->slot(1), segment->bytes()};
}

// By rank of the world: the micro-batches of a step that it computes.
std::vector<int64_t> MicroBatchesOf(const RankPlan& plan) {
  const int tensor = plan.part().place.degree;
  std::vector<int64_t> counts(static_cast<size_t>(plan.micro_batches.degree * tensor));
  for (int64_t index = 0; index < plan.micro_batches.count; ++index) {
    const int first = plan.micro_batches.Of(index).rank * tensor;
    for (int member = 0; member < tensor; ++member) ++counts[static_cast<size_t>(first + member)];
  }
  return counts;
}

absl::StatusOr<int64_t> IdleAnonymousBytes() {
  // What an earlier job of this process left in the heap would be taken up again, and not count.
  ReturnFreeHeap();
  return AnonymousBytes();
}

std::unique_ptr<Ops> MakeOps(const RankPlan& plan, const v1::JobSpec& spec, int threads,
                             MemoryMeter& meter, Accelerator* accelerator) {
  if (accelerator != nullptr) {
    // What grows in turn would leave holes in what is reserved.
    const DeviceScratch largest = LargestDeviceScratch(plan, spec);
    return accelerator->MakeOps({.meter = &meter,
                                 .bf16 = plan.param_bytes < SizeOf(DType::kF32),
                                 .kernel_scratch_bytes = largest.kernels,
                                 .operand_scratch_bytes = largest.operands});
  }
  // All of it now: a rank may be without a micro-batch for long.
  const ScratchSizes scratch = ScratchOf(plan, spec);
  return MakeCpuOps(threads, meter,
                    {.panel = scratch.panel,
                     .tile = scratch.tile,
                     .values = scratch.values,
                     .shared = scratch.shared});
}

}  // namespace

RankJob::RankJob(const v1::Assignment& assignment, const RankPlan& plan, int threads,
                 RankMesh& mesh, HoldingSegment* segment, JobData data, JobFiles output,
                 prometheus::Registry& metrics, TrainObserver& observer, Accelerator* accelerator)
    : assignment_(assignment),
      spec_(assignment.spec()),
      plan_(plan),
      threads_(threads),
      predicted_(PredictLedgerOn(assignment, plan, threads, accelerator)),
      mesh_(mesh),
      segment_(segment),
      observer_(observer),
      data_(std::move(data)),
      output_(std::move(output)),
      weight_files_(output_.files),
      device_(accelerator == nullptr ? static_cast<Device&>(host_device_) : *accelerator),
      meter_(device_.memory()),
      idle_anonymous_bytes_(IdleAnonymousBytes()),
      ops_(MakeOps(plan, spec_, threads, meter_, accelerator)),
      memory_(plan, ArenasOf(plan, mesh, accelerator), SlotsOf(segment), meter_, accelerator),
      checkpointing_(assignment, plan, output_.files, memory_, meter_, observer),
      // Every rank computes the same.
      commits_(segment,
               [this](const v1::StepReport& report) {
                 // What goes on after a checkpoint takes back what was reported beyond it.
                 const bool known =
                     RestoresVersion(assignment_) && report.step() <= assignment_.reported_step();
                 if (record_ != nullptr) record_->Add(report);
                 if (leads() && !known) observer_.OnStep(report);
               }),
      // Its activations come first in the arena.
      tensor_(mesh.tensor() == nullptr
                  ? nullptr
                  : std::make_unique<TensorGroup>(*mesh.tensor(), mesh.tensor()->arena())),
      model_(MakeModel(
          plan.shape, plan.inventory, spec_.train().micro_batch(), spec_.train().seq_len(),
          KeptBy(spec_.parallel()), *ops_, meter_, tensor_.get(),
          {.z_loss = spec_.train().z_loss(), .label_smoothing = spec_.train().label_smoothing()},
          {.room = RoomIn(plan), .gradients = memory_.gradients()})),
      executor_(plan, spec_, *ops_, *model_, tensor_.get(), mesh, memory_, commits_, data_, meter_,
                device_),
      eval_plan_(BuildEvalPlanFor(plan, spec_, data_.eval_micro_batches())),
      metrics_(metrics, assignment.job_id(), spec_.name(),
               std::string(NameOf(spec_.parallel().strategy())), assignment.rank(),
               mesh.transports()),
      stragglers_(MicroBatchesOf(plan)),
      loss_(std::numeric_limits<double>::quiet_NaN()) {
  meter_.Allocated(Pool::kComm, mesh_.control_bytes(), MemoryMeter::Side::kHost);
  meter_.Allocated(Pool::kComm, mesh_.device_control_bytes());
  // Weights from a folder come when it is known that there are no later ones; and none where there
  // was no memory for the state.
  if (spec_.model().from().empty() && device_.status().ok()) {
    InitializeParameters(plan, spec_.train().seed(), memory_, *ops_, device_);
  }
  metrics_.RecordMemory(meter_);
  metrics_.RecordPrediction(predicted_);
}

absl::Status RankJob::TellOwedSteps() {
  if (!RestoresVersion(assignment_)) return absl::OkStatus();
  // A version that some ranks have restored can still be lost with a process that they read from.
  SHERD_RETURN_IF_ERROR(mesh_.Barrier());
  if (!leads()) return absl::OkStatus();
  for (v1::StepReport& report : segment_->Reports(assignment_.reported_step(), step_)) {
    report.set_epoch(assignment_.epoch());
    observer_.OnStep(report);
  }
  return absl::OkStatus();
}

std::vector<v1::StepReport> RankJob::LastSteps() const {
  // What goes on after a checkpoint may have taken back what was told.
  const int64_t told = RestoresVersion(assignment_) ? assignment_.reported_step() : 0;
  std::vector<v1::StepReport> steps = commits_.LastReports(told);
  for (v1::StepReport& report : steps) report.set_epoch(assignment_.epoch());
  return steps;
}

absl::Status RankJob::SaveAndStop() {
  paused_ = true;
  finishing_ = "saving a checkpoint";
  absl::Status status = TellOwedSteps();
  BringStateHome(plan_, memory_, device_);
  if (status.ok()) status = device_.status();
  if (status.ok()) status = checkpointing_.SaveNow({step_, loss_, skipped_windows_}, mesh_);
  return EndWith(status);
}

absl::Status RankJob::Run() { return EndWith(RunSteps()); }

absl::Status RankJob::EndWith(absl::Status status) {
  if (status.ok()) return status;
  checkpointing_.Cancel();
  // Operations that are under way write into this job's memory, and peers must not wait for a rank
  // that leaves.
  mesh_.Abort(status.message());
  executor_.AwaitQuiet();
  checkpointing_.End();
  return status;
}

bool RankJob::EvaluatesAfter(int64_t step) const {
  const int64_t eval_every = spec_.train().eval_every();
  return step == spec_.train().steps() || (eval_every > 0 && step > 0 && step % eval_every == 0);
}

absl::Status RankJob::RunSteps() {
  const int64_t steps = spec_.train().steps();
  const int64_t first = step_;
  SHERD_RETURN_IF_ERROR(TellOwedSteps());
  SHERD_RETURN_IF_ERROR(BeginRecord());
  if (EvaluatesAfter(first) && assignment_.reported_eval_step() < first) {
    SHERD_RETURN_IF_ERROR(Evaluate());
  }
  while (step_ < steps) {
    const bool last = step_ + 1 == steps;
    const bool measured = step_ == first || last;
    // What is counted of a step includes what it gathers at its end, and nothing of the one before.
    if (measured) SHERD_RETURN_IF_ERROR(executor_.Settle());
    const GroupCounts before = mesh_.counts_by_group();
    SHERD_ASSIGN_OR_RETURN(const bool pause, RunStep());
    if (measured) SHERD_RETURN_IF_ERROR(executor_.Settle());
    // Compiling kernels between the workspaces of others has left holes in every thread's heap.
    if (step_ == first + 1) ReturnFreeHeap();
    if (step_ == first + 1) CountStoredFor();
    if (measured) ReportLedger(Difference(mesh_.counts_by_group(), before));
    if (checkpointing_.IsDueAfter(step_)) {
      // Nothing is trained beside the last one, which need not be left out.
      if (last) SHERD_RETURN_IF_ERROR(checkpointing_.Finish(mesh_));
      BringStateHome(plan_, memory_, device_);
      // A device that has failed has brought nothing.
      SHERD_RETURN_IF_ERROR(device_.status());
      checkpointing_.Begin({step_, loss_, skipped_windows_});
    }
    const bool evaluates = EvaluatesAfter(step_);
    if (evaluates || pause) SHERD_RETURN_IF_ERROR(CommitNow());
    if (evaluates) SHERD_RETURN_IF_ERROR(Evaluate());
    if (pause && !last) {
      paused_ = true;
      SHERD_RETURN_IF_ERROR(executor_.Settle());
      break;
    }
  }
  finishing_ = "saving the last checkpoint";
  return checkpointing_.Finish(mesh_);
}

absl::Status RankJob::BeginRecord() {
  if (!leads()) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(std::string root, Directory());
  std::vector<v1::StepReport> known;
  if (segment_ != nullptr) known = segment_->Reports(0, step_);
  record_ = std::make_unique<JobRecord>(output_.files, std::move(root), assignment_.epoch(), step_,
                                        std::move(known));
  return absl::OkStatus();
}

std::string RankJob::operation() const {
  const char* const finishing = finishing_.load(std::memory_order_relaxed);
  if (finishing == nullptr) return executor_.operation();
  if (const int64_t since = awaits_room_since_.load(std::memory_order_relaxed); since != 0) {
    const std::chrono::steady_clock::duration waited =
        std::chrono::steady_clock::now().time_since_epoch() -
        std::chrono::steady_clock::duration(since);
    // Whoever looks twice sees that it does not hang.
    return absl::StrFormat("waiting for room to write the weights (%.1f s)",
                           std::chrono::duration<double>(waited).count());
  }
  // Whoever looks twice sees whether anything is written.
  return absl::StrCat(finishing, " (file operation ",
                      checkpointing_.file_operations() + weight_files_.operations(), ")");
}

absl::Status RankJob::CommitNow() {
  SHERD_RETURN_IF_ERROR(executor_.AwaitStored());
  SHERD_RETURN_IF_ERROR(mesh_.Barrier());
  commits_.Commit();
  return absl::OkStatus();
}

absl::StatusOr<bool> RankJob::RunStep() {
  const auto start = std::chrono::steady_clock::now();
  const double exposed_before = executor_.phases().exposed;
  const int64_t step = step_ + 1;
  SHERD_ASSIGN_OR_RETURN(const StepFigures figures, TrainStep(step));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  step_ = step;
  const double lr = LearningRate(spec_.train(), step);
  // Ranks with micro-batches of a last round have one more than others: this is their mean. What is
  // masked is computed all the same.
  const int64_t tokens = spec_.train().global_batch() * spec_.train().seq_len();
  const double flops = TrainingFlops(plan_.shape, plan_.inventory, spec_.train().seq_len(),
                                     tokens / mesh_.data_size());
  metrics_.RecordStep(figures, seconds, step, lr, flops, spec_.train().global_batch());
  metrics_.RecordPhases(executor_.phases());
  metrics_.RecordMemory(meter_);
  metrics_.RecordWire(mesh_.counts_by_group());
  metrics_.RecordCopies(commits_.costs());
  v1::StepReport report;
  report.set_step(step);
  report.set_epoch(assignment_.epoch());
  report.set_loss(figures.loss);
  report.set_grad_norm(figures.grad_norm);
  report.set_lr(lr);
  report.set_tokens(figures.tokens);
  report.set_tokens_per_second(static_cast<double>(figures.tokens) / seconds);
  report.set_step_ms(seconds * 1e3);
  report.set_exposed_ms((executor_.phases().exposed - exposed_before) * 1e3);
  report.set_skipped_windows(skipped_windows_);
  commits_.Store(report);
  loss_ = figures.loss;
  checkpointing_.Hear(figures.saves);
  if (leads()) Watch(figures);
  return figures.pause;
}

absl::StatusOr<StepFigures> RankJob::TrainStep(int64_t step) {
  const v1::ElasticSpec& elastic = spec_.elastic();
  while (true) {
    executor_.SetSaveWord(checkpointing_.word());
    absl::StatusOr<StepFigures> figures = executor_.Train(step, step + skipped_windows_);
    // Nothing was updated, and every rank has seen the same: the state is that of the step before.
    const bool goes_on = executor_.diverged() && elastic.on_nan() == v1::ON_NAN_ROLLBACK &&
                         skipped_windows_ < elastic.max_rollbacks();
    if (!goes_on) return figures;
    ++skipped_windows_;
    if (!leads()) continue;
    Warn("divergence", -1,
         absl::StrCat(figures.status().message(), ". The samples of window ",
                      step + skipped_windows_ - 1, " are skipped and step ", step,
                      " is trained on those that follow, for the ", skipped_windows_, ". of ",
                      elastic.max_rollbacks(), " times"));
  }
}

void RankJob::Warn(const char* kind, int rank, const std::string& text) {
  v1::Warning warning;
  warning.set_kind(kind);
  warning.set_rank(rank);
  warning.set_text(text);
  observer_.OnWarning(warning);
}

void RankJob::Watch(const StepFigures& figures) {
  for (const Straggler& slow : stragglers_.Add(figures.busy_seconds)) {
    Warn("straggler", slow.rank,
         absl::StrFormat("rank %d has needed %.3g s for a micro-batch for a while, the others' "
                         "median is %.3g s: every step waits for it",
                         slow.rank, slow.seconds, slow.median_seconds));
  }
  const absl::Status failed = record_ == nullptr ? absl::OkStatus() : record_->TakeFailure();
  if (!failed.ok()) {
    Warn("metrics", -1,
         absl::StrCat("metrics.jsonl and TensorBoard's events are not written any more: ",
                      failed.message()));
  }
  if (losses_.Add(figures.loss)) {
    Warn("divergence", -1,
         absl::StrCat("the loss of step ", step_.load(), " is ", figures.loss,
                      ", far above what it was"));
  }
}

absl::Status RankJob::Evaluate() {
  const int64_t micro_batches = data_.eval_micro_batches();
  if (micro_batches == 0) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(const StepFigures figures, executor_.Evaluate(eval_plan_, micro_batches));
  if (!leads()) return absl::OkStatus();
  v1::EvalReport report;
  report.set_step(step_);
  report.set_epoch(assignment_.epoch());
  report.set_loss(figures.loss);
  report.set_tokens(figures.tokens);
  record_->Add(report);
  observer_.OnEval(report);
  return absl::OkStatus();
}

void RankJob::CountStoredFor() {
  if (holdings_ == nullptr) return;
  // No rank has come back from the first exchange before all had their shards stored.
  stored_for_bytes_ = holdings_->BytesFor(assignment_.job_id(), assignment_.epoch());
  meter_.Allocated(Pool::kReplicas, stored_for_bytes_, MemoryMeter::Side::kHost);
}

void RankJob::ReportLedger(const GroupCounts& step_counts) {
  v1::RankLedger ledger = predicted_;
  FillMeasured(meter_, step_counts, ledger);
  // Told again after the last step only if something has changed since the first.
  if (google::protobuf::util::MessageDifferencer::Equals(ledger, reported_ledger_)) return;
  reported_ledger_ = ledger;
  ledger.set_process_bytes(ProcessGrowth());
  observer_.OnLedger(ledger);
}

int64_t RankJob::ProcessGrowth() const {
  const absl::StatusOr<int64_t> now = AnonymousBytes();
  if (!idle_anonymous_bytes_.ok() || !now.ok()) return 0;
  // Those of a device are not of the host's memory.
  const int64_t arenas = device_.has_own_memory() ? 0 : mesh_.arena_bytes();
  return *now - *idle_anonymous_bytes_ + arenas + mesh_.control_bytes() +
         (segment_ == nullptr ? 0 : segment_->bytes()) + stored_for_bytes_;
}

}  // namespace sherd
