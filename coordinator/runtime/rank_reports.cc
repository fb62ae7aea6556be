#include "coordinator/runtime/rank_reports.h"

#include "common/printable_text.h"
#include "coordinator/runtime/job_feed.h"

namespace sherd {
namespace {

constexpr size_t kMostTextBytes = 4096;
constexpr size_t kMostOperationBytes = 256;

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
      return changed;
    case v1::RankReport::kFinished:
      changed.set_milestone(v1::RankChanged::MILESTONE_FINISHED);
      changed.set_step(report.finished().steps());
      changed.set_weights_path(PrintableText(report.finished().weights_path(), kMostTextBytes));
      return changed;
    case v1::RankReport::kFailed:
      changed.set_milestone(v1::RankChanged::MILESTONE_FAILED);
      changed.set_error(PrintableText(report.failed().error(), kMostTextBytes));
      changed.set_step(report.failed().step());
      changed.set_operation(PrintableText(report.failed().operation(), kMostOperationBytes));
      changed.set_lost_peer(report.failed().lost_peer());
      return changed;
    case v1::RankReport::kReleased:
      changed.set_milestone(v1::RankChanged::MILESTONE_RELEASED);
      return changed;
    default:
      return std::nullopt;
  }
}

std::optional<v1::JobEvent> FeedEntryOf(const v1::RankReport& report) {
  v1::JobEvent entry;
  entry.set_job_id(report.job_id());
  switch (report.report_case()) {
    case v1::RankReport::kStep:
      if (report.rank() != 0) return std::nullopt;
      *entry.mutable_step() = report.step();
      entry.mutable_step()->set_epoch(report.epoch());
      return entry;
    case v1::RankReport::kEval:
      if (report.rank() != 0) return std::nullopt;
      *entry.mutable_eval() = report.eval();
      entry.mutable_eval()->set_epoch(report.epoch());
      return entry;
    case v1::RankReport::kLedger:
      *entry.mutable_ledger() = report.ledger();
      entry.mutable_ledger()->set_rank(report.rank());
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
