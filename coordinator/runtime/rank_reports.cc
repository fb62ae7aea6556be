#include "coordinator/runtime/rank_reports.h"

#include "common/printable_text.h"
#include "coordinator/runtime/job_feed.h"

namespace sherd {
namespace {

constexpr size_t kMostTextBytes = 4096;
constexpr size_t kMostOperationBytes = 256;

// A rank also sends what one of an earlier epoch did not get to say.
template <typename Said>
int64_t EpochOf(const Said& said, const v1::RankReport& report) {
  return said.epoch() >= 1 && said.epoch() <= report.epoch() ? said.epoch() : report.epoch();
}

}  // namespace

std::optional<v1::RankChanged> MilestoneOf(const v1::RankReport& report) {
  v1::RankChanged changed;
  changed.set_job_id(report.job_id());
  changed.set_epoch(report.epoch());
  changed.set_rank(report.rank());
  changed.set_lost_peer(-1);
  switch (report.report_case()) {
    case v1::RankReport::kReady:
      changed.set_milestone(v1::RankChanged::MILESTONE_READY);
      changed.set_form_seconds(report.ready().form_seconds());
      changed.set_step(report.ready().step());
      return changed;
    case v1::RankReport::kFinished:
      changed.set_milestone(v1::RankChanged::MILESTONE_FINISHED);
      changed.set_step(report.finished().steps());
      changed.set_weights_path(PrintableText(report.finished().weights_path(), kMostTextBytes));
      if (report.finished().has_trial()) *changed.mutable_trial() = report.finished().trial();
      return changed;
    case v1::RankReport::kFailed:
      changed.set_milestone(v1::RankChanged::MILESTONE_FAILED);
      changed.set_error(PrintableText(report.failed().error(), kMostTextBytes));
      changed.set_step(report.failed().step());
      changed.set_operation(PrintableText(report.failed().operation(), kMostOperationBytes));
      changed.set_lost_peer(report.failed().lost_peer());
      changed.set_lost_holder(PrintableText(report.failed().lost_holder(), kMostOperationBytes));
      changed.set_final(report.failed().final());
      return changed;
    case v1::RankReport::kReleased:
      changed.set_milestone(v1::RankChanged::MILESTONE_RELEASED);
      changed.set_step(report.released().step());
      *changed.mutable_holdings() = report.released().holdings();
      return changed;
    default:
      return std::nullopt;
  }
}

std::optional<v1::CheckpointSaved> SavedCheckpointOf(const v1::RankReport& report) {
  if (!report.has_checkpoint() || !report.checkpoint().error().empty()) return std::nullopt;
  v1::CheckpointSaved saved;
  saved.set_job_id(report.job_id());
  saved.set_epoch(report.epoch());
  saved.set_step(report.checkpoint().step());
  // It is a name, not a text: one that cannot be printed is not to be used.
  const std::string& path = report.checkpoint().path();
  if (path.empty() || PrintableText(path, kMostTextBytes) != path) return std::nullopt;
  saved.set_path(path);
  return saved;
}

std::optional<v1::JobEvent> FeedEntryOf(const v1::RankReport& report) {
  v1::JobEvent entry;
  entry.set_job_id(report.job_id());
  switch (report.report_case()) {
    case v1::RankReport::kStep:
      if (report.rank() != 0) return std::nullopt;
      *entry.mutable_step() = report.step();
      entry.mutable_step()->set_epoch(EpochOf(report.step(), report));
      return entry;
    case v1::RankReport::kEval:
      if (report.rank() != 0) return std::nullopt;
      *entry.mutable_eval() = report.eval();
      entry.mutable_eval()->set_epoch(EpochOf(report.eval(), report));
      return entry;
    case v1::RankReport::kLedger:
      *entry.mutable_ledger() = report.ledger();
      entry.mutable_ledger()->set_rank(report.rank());
      return entry;
    case v1::RankReport::kCheckpoint:
      *entry.mutable_checkpoint() = report.checkpoint();
      entry.mutable_checkpoint()->set_epoch(report.epoch());
      entry.mutable_checkpoint()->set_path(
          PrintableText(report.checkpoint().path(), kMostTextBytes));
      entry.mutable_checkpoint()->set_error(
          PrintableText(report.checkpoint().error(), kMostTextBytes));
      return entry;
    case v1::RankReport::kWarning:
      *entry.mutable_warning() = report.warning();
      entry.mutable_warning()->set_rank(report.rank());
      entry.mutable_warning()->set_kind(
          PrintableText(report.warning().kind(), kMostOperationBytes));
      entry.mutable_warning()->set_text(PrintableText(report.warning().text(), kMostTextBytes));
      return entry;
    case v1::RankReport::kLog:
      *entry.mutable_log() = report.log();
      entry.mutable_log()->set_rank(report.rank());
      entry.mutable_log()->set_text(PrintableText(report.log().text(), kLogLineBytes));
      return entry;
    default:
      return std::nullopt;
  }
}

}  // namespace sherd
