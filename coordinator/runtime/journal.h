#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/state.h"
#include "coordinator/runtime/job_feed.h"
#include "coordinator/store/event_log.h"

namespace sherd {

// The state, and the rule that whatever changes it is stored before anybody outside learns of it:
// events are applied at once and gathered; Commit stores what a turn gathered in one transaction
// and only then runs the turn's effects (messages, replies). One thread.
class Journal {
 public:
  // `published` sees every new feed entry.
  Journal(EventLog& log, const Clock& clock, std::function<void(const v1::JobEvent&)> published)
      : log_(log), clock_(clock), published_(std::move(published)) {}
  Journal(const Journal&) = delete;

  // Builds the state from the log: its newest snapshot, and the events since. Call first, once.
  // kFailedPrecondition when those are of other rules than this version's (core/rules.h).
  absl::Status Recover();

  const State& state() const { return state_; }
  const JobFeed& feed() const { return feed_; }
  const std::vector<Acknowledgement>& recovered_acknowledgements() const { return recovered_; }
  int64_t appended() const { return appended_; }

  // Numbers, dates and applies an event. Feed entries are published; the other actions are
  // returned.
  Actions Append(v1::DurableEvent event);
  void Publish(v1::JobEvent entry);
  void Acknowledge(Acknowledgement acknowledgement);
  // Runs `effect` at the next Commit, after what came before it.
  void AfterCommit(std::function<void()> effect);

  // An error means that the log cannot be written: the state is ahead of it, no effect ran, and the
  // coordinator must end.
  absl::Status Commit();

  // Keeps the log small: stores a snapshot when `most_events` have come since the last one, and
  // drops a part of the feeds of forgotten jobs. Call after Commit, now and then. What fails is
  // said in the process's log and tried again later.
  void Tidy(int64_t most_events);
  // Before an end in order, after Commit: a snapshot covers the whole log, so that the next life,
  // which may have other rules, replays nothing. What fails is said in the process's log.
  void Seal();

  absl::StatusOr<std::vector<v1::JobEvent>> ReadFeed(const JobId& job, int64_t after_sequence,
                                                     int64_t limit) {
    return log_.ReadFeed(job, after_sequence, limit);
  }

 private:
  absl::Status RecoverState();
  absl::Status Compact();

  EventLog& log_;
  const Clock& clock_;
  const std::function<void(const v1::JobEvent&)> published_;
  State state_;
  JobFeed feed_;
  LogBatch batch_;
  std::vector<std::function<void()>> effects_;
  std::vector<Acknowledgement> recovered_;
  int64_t appended_ = 0;
  // Events since the last snapshot.
  int64_t uncompacted_ = 0;
  // Jobs whose feeds are to be dropped, once what made them forgotten is stored.
  std::vector<JobId> forgotten_;
};

}  // namespace sherd
