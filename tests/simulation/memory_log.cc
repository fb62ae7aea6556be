#include "tests/simulation/memory_log.h"

#include <algorithm>

namespace sherd::simulation {

absl::Status MemoryLog::Commit(const LogBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  observer_(batch);
  if (!batch.events.empty()) last_batch_events_ = batch.events.size();
  events_.insert(events_.end(), batch.events.begin(), batch.events.end());
  for (const v1::JobEvent& entry : batch.feed) feeds_[JobId(entry.job_id())].push_back(entry);
  for (const Acknowledgement& taken : batch.acknowledgements) {
    acknowledgements_[taken.worker] = taken;
  }
  return absl::OkStatus();
}

absl::Status MemoryLog::Replay(int64_t after_sequence,
                               const std::function<void(const v1::DurableEvent&)>& visit) {
  for (const v1::DurableEvent& event : events_) {
    if (event.sequence() > after_sequence) visit(event);
  }
  return absl::OkStatus();
}

absl::Status MemoryLog::Compact(const v1::StoredState& state) {
  snapshot_ = state;
  events_.clear();
  last_batch_events_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> MemoryLog::DropFeed(const JobId& job, int64_t) {
  feeds_.erase(job);
  return true;
}

absl::StatusOr<std::vector<FeedSummary>> MemoryLog::SummarizeFeeds() {
  std::vector<FeedSummary> summaries;
  for (const auto& [job, feed] : feeds_) {
    FeedSummary summary;
    summary.job = job;
    for (const v1::JobEvent& entry : feed) {
      summary.last_sequence = entry.sequence();
      if (entry.has_log()) ++summary.log_lines;
      if (entry.has_step()) summary.last_step = entry;
      if (entry.has_eval()) summary.last_eval = entry;
      if (entry.has_rollback()) summary.last_rollback = entry;
    }
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

absl::StatusOr<std::vector<Acknowledgement>> MemoryLog::Acknowledgements() {
  std::vector<Acknowledgement> all;
  for (const auto& [worker, taken] : acknowledgements_) all.push_back(taken);
  return all;
}

absl::StatusOr<std::vector<v1::JobEvent>> MemoryLog::ReadFeed(const JobId& job,
                                                              int64_t after_sequence,
                                                              int64_t limit) {
  std::vector<v1::JobEvent> chunk;
  for (const v1::JobEvent& entry : feeds_[job]) {
    if (entry.sequence() <= after_sequence) continue;
    if (static_cast<int64_t>(chunk.size()) == limit) break;
    chunk.push_back(entry);
  }
  return chunk;
}

void MemoryLog::LoseLastBatch() {
  events_.resize(events_.size() - std::min(events_.size(), last_batch_events_));
  last_batch_events_ = 0;
}

}  // namespace sherd::simulation
