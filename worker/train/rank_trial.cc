// What a rank measures of a layout.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "common/status_macros.h"
#include "worker/train/rank_job.h"

namespace sherd {

absl::StatusOr<v1::TrialReport> RankJob::RunTrial() {
  absl::StatusOr<v1::TrialReport> report = TimeSteps();
  SHERD_RETURN_IF_ERROR(EndWith(report.status()));
  return report;
}

absl::StatusOr<v1::TrialReport> RankJob::TimeSteps() {
  std::vector<double> seconds;
  for (int64_t step = 0; step < assignment_.trial().steps(); ++step) {
    const auto start = std::chrono::steady_clock::now();
    SHERD_RETURN_IF_ERROR(RunStep().status());
    const auto taken = std::chrono::steady_clock::now() - start;
    // The first one touches memory and compiles kernels.
    if (step > 0) seconds.push_back(std::chrono::duration<double>(taken).count());
  }
  // Nobody's memory goes while another reads it.
  SHERD_RETURN_IF_ERROR(executor_.Settle());
  SHERD_RETURN_IF_ERROR(CommitNow());
  v1::TrialReport report;
  report.set_number(assignment_.trial().number());
  report.set_peak_bytes(meter_.peak_total());
  if (seconds.empty()) return report;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  report.set_step_seconds(*middle);
  return report;
}

}  // namespace sherd
