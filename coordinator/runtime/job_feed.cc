#include "coordinator/runtime/job_feed.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

// Cuts at a character's boundary: protobuf strings must stay UTF-8.
void Truncate(std::string& text) {
  if (static_cast<int64_t>(text.size()) <= kLogLineBytes) return;
  size_t end = kLogLineBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
}

}  // namespace

void JobFeed::Restore(const FeedSummary& summary) {
  Progress progress{summary.last_step.step().step(), summary.last_step.step().loss(),
                    summary.last_step.step().step_ms(), summary.last_eval.eval().step()};
  const int64_t rolled_back = summary.last_rollback.sequence();
  const int64_t to_step = summary.last_rollback.rollback().to_step();
  if (rolled_back > summary.last_step.sequence()) progress.step = std::min(progress.step, to_step);
  if (rolled_back > summary.last_eval.sequence()) {
    progress.eval_step = std::min(progress.eval_step, to_step);
  }
  Entry& job = jobs_[summary.job];
  job = {summary.last_sequence, summary.log_lines, progress, {}};
  if (summary.last_step.has_step()) job.latest.step = summary.last_step.step();
}

std::optional<v1::JobEvent> JobFeed::Add(v1::JobEvent entry) {
  Entry& job = jobs_[JobId(entry.job_id())];
  if (entry.has_log()) {
    if (job.log_lines >= kLogLinesPerJob) return std::nullopt;
    if (++job.log_lines == kLogLinesPerJob) {
      entry.mutable_log()->set_text(absl::StrCat("the job's log is full: lines after the ",
                                                 kLogLinesPerJob, "th are dropped"));
    }
    Truncate(*entry.mutable_log()->mutable_text());
  }
  if (entry.has_step()) {
    job.progress.step = entry.step().step();
    job.progress.loss = entry.step().loss();
    job.progress.step_ms = entry.step().step_ms();
    job.latest.step = entry.step();
  }
  if (entry.has_epoch()) {
    job.latest.epoch = entry.epoch();
    job.latest.peaks.clear();
  }
  if (entry.has_ledger()) {
    const auto peak = entry.ledger().memory().find("peak");
    if (peak != entry.ledger().memory().end()) {
      job.latest.peaks[entry.ledger().rank()] = peak->second;
    }
  }
  if (entry.has_eval()) job.progress.eval_step = entry.eval().step();
  // What was lost is reported again.
  if (entry.has_rollback()) {
    const int64_t to_step = entry.rollback().to_step();
    job.progress.step = std::min(job.progress.step, to_step);
    job.progress.eval_step = std::min(job.progress.eval_step, to_step);
  }
  // Steps are no durable events, so the reducer may know of fewer.
  if (entry.has_done()) {
    entry.mutable_done()->set_steps(std::max(entry.done().steps(), job.progress.step));
  }
  entry.set_sequence(++job.last_sequence);
  return entry;
}

int64_t JobFeed::LastSequence(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second.last_sequence;
}

Progress JobFeed::ProgressOf(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? Progress{} : found->second.progress;
}

const Latest* JobFeed::LatestOf(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second.latest;
}

}  // namespace sherd
