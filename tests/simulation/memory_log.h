#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/store/event_log.h"

namespace sherd::simulation {

// An event log in memory: it survives the coordinator that writes it, and shows what is committed.
class MemoryLog final : public EventLog {
 public:
  using Observer = std::function<void(const LogBatch&)>;

  explicit MemoryLog(Observer observer) : observer_(std::move(observer)) {}

  absl::Status Commit(const LogBatch& batch) override;
  absl::StatusOr<std::optional<v1::StoredState>> ReadSnapshot() override { return snapshot_; }
  absl::Status Replay(int64_t after_sequence,
                      const std::function<void(const v1::DurableEvent&)>& visit) override;
  absl::Status Compact(const v1::StoredState& state) override;
  absl::StatusOr<bool> DropFeed(const JobId& job, int64_t most) override;
  absl::StatusOr<std::vector<FeedSummary>> SummarizeFeeds() override;
  absl::StatusOr<std::vector<Acknowledgement>> Acknowledgements() override;
  absl::StatusOr<std::vector<v1::JobEvent>> ReadFeed(const JobId& job, int64_t after_sequence,
                                                     int64_t limit) override;

  // A fault: the last batch that brought durable events is gone, as if it had never been stored.
  void LoseLastBatch();

 private:
  const Observer observer_;
  std::optional<v1::StoredState> snapshot_;
  // Since the snapshot.
  std::vector<v1::DurableEvent> events_;
  size_t last_batch_events_ = 0;
  std::map<JobId, std::vector<v1::JobEvent>> feeds_;
  std::map<WorkerId, Acknowledgement> acknowledgements_;
};

}  // namespace sherd::simulation
