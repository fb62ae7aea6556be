#include "worker/train/checkpointing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/training_state.h"
#include "worker/train/vote.h"

namespace sherd {
namespace {

// F15: numbers that are none are not published. Loss and norm are those before the last update.
absl::Status CheckFinite(absl::Span<const TensorRange> ranges) {
  for (const TensorRange& range : ranges) {
    const float* const end = range.data + (range.end - range.begin);
    if (std::all_of(range.data, end, [](float value) { return std::isfinite(value); })) continue;
    return absl::DataLossError(
        absl::StrCat("the last update made values of ", range.name,
                     " infinite or no number: nothing is saved; lower train.optimizer.lr"));
  }
  return absl::OkStatus();
}

std::string Reason(absl::StatusCode why) {
  switch (why) {
    case absl::StatusCode::kResourceExhausted:
      return "no space is left where it writes";
    case absl::StatusCode::kPermissionDenied:
      return "it may not write there";
    case absl::StatusCode::kDataLoss:
      return "its state holds values that are infinite or no number";
    default:
      return absl::StatusCodeToString(why);
  }
}

// The rank's log has the words.
absl::Status OfRank(int rank, absl::StatusCode why) {
  return absl::Status(why, absl::StrCat("rank ", rank, " could not write its part: ", Reason(why)));
}

}  // namespace

Checkpointing::Checkpointing(const v1::Assignment& assignment, const RankPlan& plan,
                             FileSystem& files, RankMemory& memory, MemoryMeter& meter,
                             TrainObserver& observer)
    : assignment_(assignment),
      plan_(plan),
      real_files_(files),
      files_(files),
      memory_(memory),
      observer_(observer) {
  if (!plan.saves) return;
  snapshot_ = Buffer::OnHost(meter, Pool::kReplicas, SnapshotBytes(plan));
  const float* at = snapshot_.as<float>();
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    for (const ElementRange& counted : plan.Counted(static_cast<int>(index))) {
      const int64_t size = counted.size();
      AppendState(plan.inventory.units[index], counted, {at, at + size, at + 2 * size}, ranges_);
      at += 3 * size;
    }
  }
  SHERD_CHECK(reinterpret_cast<const std::byte*>(at) == snapshot_.data() + snapshot_.bytes());
  thread_ = std::thread([this] { Work(); });
}

Checkpointing::~Checkpointing() { End(); }

void Checkpointing::End() {
  Cancel();
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  Tell();
  const bool over = word().state == SaveWord::State::kOver;
  if (saving_ && leads() && !over) DiscardSave(real_files_, place_.root, *saving_);
  saving_.reset();
}

bool Checkpointing::IsDueAfter(int64_t step) const {
  return plan_.saves && step % assignment_.spec().checkpoint().every() == 0;
}

CheckpointInfo Checkpointing::InfoOf(const TrainedState& state) const {
  const v1::JobSpec& spec = assignment_.spec();
  CheckpointInfo info;
  info.job_id = assignment_.job_id();
  info.step = state.step;
  info.epoch = assignment_.epoch();
  info.model = plan_.shape;
  info.tokenizer = spec.data().tokenizer();
  TrainingInfo training;
  training.lineage = place_.lineage;
  training.train = spec.train();
  training.corpus_tokens = place_.corpus_tokens;
  training.train_weights.assign(spec.data().train_weights().begin(),
                                spec.data().train_weights().end());
  training.validation_split = spec.data().validation_split();
  training.tokens = state.step * spec.train().global_batch() * spec.train().seq_len();
  training.loss = state.loss;
  training.skipped_windows = state.skipped_windows;
  info.training = std::move(training);
  return info;
}

void Checkpointing::Begin(const TrainedState& state) {
  if (saving_) {
    if (!leads()) return;
    observer_.OnLog(absl::StrCat("step ", state.step, " is not saved as a checkpoint: the save of ",
                                 "step ", saving_->step,
                                 " is still under way; a larger checkpoint.every leaves it time"));
    return;
  }
  begun_ = Clock::now();
  auto* to = snapshot_.as<float>();
  for (size_t index = 0; index < plan_.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory_.unit(static_cast<int>(index));
    for (const ElementRange& counted : unit.counted) {
      for (const float* const array : {unit.state.master, unit.state.m, unit.state.v}) {
        std::memcpy(to, array + (counted.begin - unit.owned.begin),
                    static_cast<size_t>(counted.size()) * sizeof(float));
        to += counted.size();
      }
    }
  }
  saving_ = InfoOf(state);
  failure_ = absl::OkStatus();
  settling_ = false;
  Start(Task::kWrite);
}

void Checkpointing::Start(Task task) {
  absl::MutexLock lock(&mutex_);
  if (task == Task::kWrite) word_ = {};
  task_ = task;
}

void Checkpointing::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !task_.has_value(); };
  mutex_.Await(absl::Condition(&idle));
}

SaveWord Checkpointing::word() const {
  absl::MutexLock lock(&mutex_);
  return word_;
}

absl::Status Checkpointing::own_part() const {
  absl::MutexLock lock(&mutex_);
  return part_;
}

void Checkpointing::Hear(absl::Span<const SaveWord> words) {
  Tell();
  if (!saving_) return;
  if (words.front().state == SaveWord::State::kOver) {
    saving_.reset();
    return;
  }
  if (!leads() || settling_) return;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].state == SaveWord::State::kNone) return;
    if (words[rank].state != SaveWord::State::kFailed || !failure_.ok()) continue;
    failure_ = rank == 0 ? own_part() : OfRank(static_cast<int>(rank), words[rank].why);
  }
  settling_ = true;
  Start(failure_.ok() ? Task::kPublish : Task::kDiscard);
}

absl::Status Checkpointing::Finish(RankMesh& mesh) {
  // The same number of times on all ranks: they hear the same.
  while (saving_) {
    AwaitIdle();
    const SaveWord mine = word();
    std::vector<SaveWord> all(static_cast<size_t>(mesh.size()));
    SHERD_RETURN_IF_ERROR(mesh.Exchange(&mine, all.data(), sizeof(mine)));
    Hear(all);
  }
  return absl::OkStatus();
}

absl::Status Checkpointing::SaveNow(const TrainedState& state, RankMesh& mesh) {
  SHERD_CHECK(!saving_);
  begun_ = Clock::now();
  saving_ = InfoOf(state);
  std::vector<TensorRange> ranges;
  for (size_t index = 0; index < plan_.inventory.units.size(); ++index) {
    const UnitMemory& unit = memory_.unit(static_cast<int>(index));
    for (const ElementRange& counted : unit.counted) {
      const int64_t skipped = counted.begin - unit.owned.begin;
      AppendState(plan_.inventory.units[index], counted,
                  {unit.state.master + skipped, unit.state.m + skipped, unit.state.v + skipped},
                  ranges);
    }
  }
  absl::Status status = CheckFinite(ranges);
  if (status.ok()) {
    status = WriteSave(files_, place_.root, *saving_, mesh.rank(), mesh.size(), ranges);
  }
  status = Vote(mesh, status);
  const bool written = status.ok();
  if (written) status = Vote(mesh, leads() ? PublishNow() : absl::OkStatus());
  if (!written && leads()) GiveUpNow(ReportOf(status));
  saving_.reset();
  return status;
}

absl::Status Checkpointing::PublishNow() {
  const v1::CheckpointReport report = Publish();
  if (!report.error().empty()) {
    GiveUpNow(report);
    return absl::UnavailableError(report.error());
  }
  observer_.OnCheckpoint(report);
  return absl::OkStatus();
}

void Checkpointing::GiveUpNow(const v1::CheckpointReport& report) {
  DiscardSave(files_, place_.root, *saving_);
  if (files_.Check().ok()) observer_.OnCheckpoint(report);
}

v1::CheckpointReport Checkpointing::ReportOf(const absl::Status& error) const {
  v1::CheckpointReport report;
  report.set_step(saving_->step);
  report.set_epoch(saving_->epoch);
  report.set_path(StepDirectory(place_.root, saving_->step, saving_->epoch));
  report.set_seconds(std::chrono::duration<double>(Clock::now() - begun_).count());
  if (!error.ok()) report.set_error(std::string(error.message()));
  return report;
}

v1::CheckpointReport Checkpointing::Publish() {
  const absl::StatusOr<PublishedSave> published = PublishSave(
      files_, place_.root, *saving_, assignment_.world(), TrainingTensorsOf(plan_.inventory));
  v1::CheckpointReport report = ReportOf(published.status());
  if (!published.ok()) return report;
  report.set_path(published->path);
  report.set_bytes(published->bytes);
  const absl::Status retained =
      Retain(files_, place_.root, *saving_, assignment_.spec().checkpoint().keep());
  if (retained.ok() || absl::IsCancelled(retained)) return report;
  absl::MutexLock lock(&mutex_);
  remark_ = absl::StrCat("older checkpoints could not be removed: ", retained.message());
  return report;
}

void Checkpointing::Work() {
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || task_.has_value();
  };
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&wanted));
      if (!task_.has_value()) return;
      task = *task_;
    }
    if (task == Task::kWrite) {
      Write();
    } else {
      Settle(task);
    }
  }
}

void Checkpointing::Write() {
  absl::Status status = CheckFinite(ranges_);
  if (status.ok()) {
    status =
        WriteSave(files_, place_.root, *saving_, assignment_.rank(), assignment_.world(), ranges_);
  }
  absl::MutexLock lock(&mutex_);
  part_ = status;
  part_told_ = status.ok() || absl::IsCancelled(status);
  word_.state = status.ok() ? SaveWord::State::kWritten : SaveWord::State::kFailed;
  word_.why = status.code();
  task_.reset();
}

void Checkpointing::Settle(Task task) {
  const bool gives_up = task == Task::kDiscard;
  v1::CheckpointReport report = gives_up ? ReportOf(failure_) : Publish();
  if (!report.error().empty()) DiscardSave(files_, place_.root, *saving_);
  absl::MutexLock lock(&mutex_);
  word_ = {.state = SaveWord::State::kOver};
  // Who is aborted has not failed to save.
  if (report.error().empty() || files_.Check().ok()) report_ = std::move(report);
  task_.reset();
}

void Checkpointing::Tell() {
  std::optional<v1::CheckpointReport> report;
  std::string remark;
  absl::Status failure;
  {
    absl::MutexLock lock(&mutex_);
    report = std::exchange(report_, std::nullopt);
    remark = std::exchange(remark_, "");
    if (!std::exchange(part_told_, true)) failure = part_;
  }
  if (!failure.ok()) {
    observer_.OnLog(absl::StrCat("this rank's part of the checkpoint of step ", saving_->step,
                                 " could not be written: ", failure.message()));
  }
  if (report) observer_.OnCheckpoint(*report);
  if (!remark.empty()) observer_.OnLog(remark);
}

}  // namespace sherd
