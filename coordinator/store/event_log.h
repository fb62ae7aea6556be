#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "sherd/v1/coordinator_state.pb.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// The last report of a worker's life that was taken over.
struct Acknowledgement {
  WorkerId worker;
  Incarnation incarnation;
  uint64_t sequence = 0;
};

// What one turn of the event loop changed: all of it is stored, or none.
struct LogBatch {
  std::vector<v1::DurableEvent> events;
  // Numbered by the caller, without a gap per job.
  std::vector<v1::JobEvent> feed;
  std::vector<Acknowledgement> acknowledgements;

  bool empty() const { return events.empty() && feed.empty() && acknowledgements.empty(); }
};

// Where a job's feed stands.
struct FeedSummary {
  JobId job;
  int64_t last_sequence = 0;
  int64_t log_lines = 0;
  // The newest entries of these kinds; sequence 0 when there is none.
  v1::JobEvent last_step;
  v1::JobEvent last_eval;
  v1::JobEvent last_rollback;
};

// The coordinator's memory: its durable events, the jobs' feeds, and how far each worker's reports
// were taken over, in one SQLite database. A batch survives the death of the process as soon as
// Commit has returned, and a batch with durable events that of the machine, too: it is synced to
// the disk, or the end of a job could be lost after its workers were told to forget it. (Feed
// entries alone are not, `synchronous=NORMAL`: the database stays whole and may miss its last
// steps; a sync every step would cost milliseconds for what nobody but a watcher misses.)
//
// Snapshots of the state stand for the events before them (docs/adr/0010-compaction.md). The newest
// two are kept, and all events after the older one: one damaged snapshot costs nothing. One thread.
// Errors: see Database; each is one sentence that names the file.
class EventLog {
 public:
  // Opens or makes the log in `directory`, which is made if it is missing, and locks it against
  // other coordinators; ":memory:" keeps nothing. kFailedPrecondition when another coordinator has
  // it, or when it was written by a newer version.
  static absl::StatusOr<std::unique_ptr<EventLog>> Open(const std::string& directory);
  virtual ~EventLog() = default;

  virtual absl::Status Commit(const LogBatch& batch) = 0;

  // The newest sound snapshot, nothing when all is in the events. A damaged one is passed over,
  // with a line in the process's log; kDataLoss when what it stands for is nowhere else.
  virtual absl::StatusOr<std::optional<v1::StoredState>> ReadSnapshot() = 0;
  // Every event after that of the number `after_sequence`, in order. kDataLoss when one is missing
  // or cannot be read.
  virtual absl::Status Replay(int64_t after_sequence,
                              const std::function<void(const v1::DurableEvent&)>& visit) = 0;
  // Stores the state after all that was committed, and drops the events that the snapshot before
  // it stands for, and the acknowledgements of workers that it does not know; all of it, or
  // nothing.
  virtual absl::Status Compact(const v1::StoredState& state) = 0;
  // Drops the first entries of a feed that nobody reads any more, at most `most`. True when none is
  // left.
  virtual absl::StatusOr<bool> DropFeed(const JobId& job, int64_t most) = 0;
  virtual absl::StatusOr<std::vector<FeedSummary>> SummarizeFeeds() = 0;
  virtual absl::StatusOr<std::vector<Acknowledgement>> Acknowledgements() = 0;
  // At most `limit` entries of the job's feed after `after_sequence`, in order.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> ReadFeed(const JobId& job,
                                                             int64_t after_sequence,
                                                             int64_t limit) = 0;
};

}  // namespace sherd
