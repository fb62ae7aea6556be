#include "coordinator/runtime/report_rules.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "coordinator/core/epoch_end.h"

namespace sherd {
namespace {

// No worker lives to send so many; a larger number would leave none for those after it.
constexpr uint64_t kMostReports = uint64_t{1} << 62;
// Of a ledger: pools or collectives, and the bytes of a name of one.
constexpr size_t kMostLines = 64;
constexpr size_t kLongestLineName = 64;
// Of all ranks of the largest world, two versions each.
constexpr int kMostHoldings = 1 << 17;
// Of a probe: operations, sizes of groups, distances and messages.
constexpr int kMostFigures = 256;

absl::Status Protocol(absl::string_view sentence) {
  return absl::InvalidArgumentError(absl::StrCat("protocol error: ", sentence));
}

absl::Status CheckStep(const JobRecord& job, absl::string_view what, int64_t step, int64_t least) {
  const int64_t most = job.spec.train().steps();
  if (step >= least && step <= most) return absl::OkStatus();
  return Protocol(absl::StrCat(what, " ", step, " is not of a job of ", most, " steps"));
}

absl::Status CheckReady(const RankState& rank, absl::string_view what) {
  if (rank.phase == RankPhase::kRunning) return absl::OkStatus();
  return Protocol(absl::StrCat("it reported ", what, " before it was ready"));
}

absl::Status CheckTrial(const v1::TrialReport& trial) {
  const auto fits = [](const v1::CollectiveFigure& figure) {
    return figure.op() == "all_gather" || figure.op() == "reduce_scatter" ||
           figure.op() == "all_reduce";
  };
  const auto& figures = trial.collectives();
  if (figures.size() <= kMostFigures && std::all_of(figures.begin(), figures.end(), fits)) {
    return absl::OkStatus();
  }
  return Protocol("it measured more, or other operations, than a probe asks for");
}

// An epoch that measures leaves nothing in the feed.
absl::Status CheckTrains(const JobRecord& job, absl::string_view what) {
  if (!IsUndecided(job)) return absl::OkStatus();
  return Protocol(absl::StrCat("it reported ", what, " and was to measure"));
}

template <typename Lines>
absl::Status CheckLines(const Lines& lines) {
  const bool names_fit = std::all_of(lines.begin(), lines.end(), [](const auto& line) {
    return line.first.size() <= kLongestLineName &&
           std::all_of(line.first.begin(), line.first.end(),
                       [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
  });
  if (lines.size() <= kMostLines && names_fit) return absl::OkStatus();
  return Protocol("its ledger has more lines, or other names, than there are");
}

absl::Status CheckStepReport(const JobRecord& job, const Progress& progress,
                             const v1::RankReport& report) {
  const v1::StepReport& step = report.step();
  SHERD_RETURN_IF_ERROR(CheckStep(job, "step", step.step(), 1));
  // Every rank computes the same: only rank 0's are counted.
  if (report.rank() != 0 || step.step() > progress.step) return absl::OkStatus();
  // An epoch may begin with steps that the one before it had reported just yet.
  if (!job.progressed && job.epoch.value() > 1) return absl::OkStatus();
  // Who has finished told of them, too.
  if (AnyFinished(job)) return absl::OkStatus();
  return Protocol(absl::StrCat("step ", step.step(), " came after step ", progress.step));
}

absl::Status CheckFinished(const JobRecord& job, const v1::RankFinished& finished) {
  SHERD_RETURN_IF_ERROR(CheckStep(job, "an end after step", finished.steps(), 0));
  int64_t last = 0;
  for (const v1::StepReport& step : finished.last_steps()) {
    const bool ordered = step.step() > last && step.step() <= finished.steps();
    if (!ordered) {
      return Protocol(absl::StrCat("its last steps have step ", step.step(), " after step ", last,
                                   ", and it ended after step ", finished.steps()));
    }
    last = step.step();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReport(const JobRecord& job, const RankState& rank, const Progress& progress,
                         const v1::RankReport& report) {
  switch (report.report_case()) {
    case v1::RankReport::kReady:
      return CheckStep(job, "a start after step", report.ready().step(), 0);
    case v1::RankReport::kStep:
      SHERD_RETURN_IF_ERROR(CheckTrains(job, "a step"));
      SHERD_RETURN_IF_ERROR(CheckReady(rank, "a step"));
      return CheckStepReport(job, progress, report);
    case v1::RankReport::kEval:
      SHERD_RETURN_IF_ERROR(CheckTrains(job, "an evaluation"));
      SHERD_RETURN_IF_ERROR(CheckReady(rank, "an evaluation"));
      return CheckStep(job, "an evaluation after step", report.eval().step(), 0);
    case v1::RankReport::kFinished:
      SHERD_RETURN_IF_ERROR(CheckReady(rank, "its end"));
      SHERD_RETURN_IF_ERROR(CheckTrial(report.finished().trial()));
      return CheckFinished(job, report.finished());
    case v1::RankReport::kFailed:
      return CheckStep(job, "a failure after step", report.failed().step(), 0);
    case v1::RankReport::kReleased:
      if (report.released().holdings_size() > kMostHoldings) {
        return Protocol("it holds more than any process can");
      }
      return CheckStep(job, "a release after step", report.released().step(), 0);
    case v1::RankReport::kCheckpoint:
      SHERD_RETURN_IF_ERROR(CheckTrains(job, "a checkpoint"));
      return CheckStep(job, "a checkpoint of step", report.checkpoint().step(), 0);
    case v1::RankReport::kLedger:
      SHERD_RETURN_IF_ERROR(CheckLines(report.ledger().memory()));
      SHERD_RETURN_IF_ERROR(CheckLines(report.ledger().host_memory()));
      SHERD_RETURN_IF_ERROR(CheckLines(report.ledger().wire()));
      return CheckLines(report.ledger().wire_by_group());
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckSequence(uint64_t sequence, uint64_t acknowledged, bool first_of_stream) {
  if (sequence < kMostReports && (first_of_stream || sequence == acknowledged + 1)) {
    return absl::OkStatus();
  }
  return Protocol(absl::StrCat("report ", sequence, " came after report ", acknowledged));
}

}  // namespace sherd
