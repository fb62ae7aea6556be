#include "coordinator/runtime/journal.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/core/rules.h"
#include "coordinator/core/snapshot.h"

namespace sherd {
namespace {

// Of a forgotten feed, at a time: some milliseconds' worth.
constexpr int64_t kDroppedEntries = 1000;

// Events that were applied by other rules would make another state than the workers know.
absl::Status CheckRules(const v1::DurableEvent& event) {
  const int32_t rules = std::max(event.rules(), 1);
  if (rules == kRules) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the event log was not closed in order by the version that wrote event ", event.sequence(),
      " by rules ", rules, ", and this version has rules ", kRules,
      ": start that version on it once more and stop it with SIGTERM, then start this one"));
}

}  // namespace

absl::Status Journal::RecoverState() {
  SHERD_ASSIGN_OR_RETURN(const std::optional<v1::StoredState> snapshot, log_.ReadSnapshot());
  if (snapshot) {
    absl::StatusOr<State> state = ReadState(*snapshot);
    if (!state.ok()) {
      return absl::DataLossError(absl::StrCat(
          "the snapshot at event ", snapshot->sequence(), " in the event log cannot be used: ",
          state.status().message(), "; start the version that wrote it"));
    }
    state_ = *std::move(state);
  }
  // What the events asked for was done in the coordinator's earlier life, or is asked for again
  // when the workers come back.
  absl::Status readable;
  SHERD_RETURN_IF_ERROR(log_.Replay(state_.sequence, [&](const v1::DurableEvent& event) {
    if (readable.ok()) readable = CheckRules(event);
    if (!readable.ok()) return;
    Apply(event, state_);
    ++uncompacted_;
  }));
  return readable;
}

absl::Status Journal::Recover() {
  SHERD_RETURN_IF_ERROR(RecoverState());
  SHERD_ASSIGN_OR_RETURN(const std::vector<FeedSummary> feeds, log_.SummarizeFeeds());
  for (const FeedSummary& summary : feeds) {
    if (FindJob(state_, summary.job) != nullptr) {
      feed_.Restore(summary);
    } else {
      forgotten_.push_back(summary.job);
    }
  }
  SHERD_ASSIGN_OR_RETURN(recovered_, log_.Acknowledgements());
  return absl::OkStatus();
}

Actions Journal::Append(v1::DurableEvent event) {
  event.set_sequence(state_.sequence + 1);
  event.set_time_unix_ms(absl::ToUnixMillis(clock_.Now()));
  event.set_rules(kRules);
  Actions others;
  for (Action& action : Apply(event, state_)) {
    if (auto* publish = std::get_if<PublishFeed>(&action)) {
      Publish(std::move(publish->event));
    } else if (const auto* drop = std::get_if<DropFeed>(&action)) {
      feed_.Drop(drop->job);
      forgotten_.push_back(drop->job);
    } else {
      others.push_back(std::move(action));
    }
  }
  batch_.events.push_back(std::move(event));
  ++appended_;
  ++uncompacted_;
  return others;
}

void Journal::Publish(v1::JobEvent entry) {
  std::optional<v1::JobEvent> numbered = feed_.Add(std::move(entry));
  if (!numbered) return;
  published_(*numbered);
  batch_.feed.push_back(*std::move(numbered));
}

void Journal::Acknowledge(Acknowledgement acknowledgement) {
  batch_.acknowledgements.push_back(std::move(acknowledgement));
}

void Journal::AfterCommit(std::function<void()> effect) { effects_.push_back(std::move(effect)); }

absl::Status Journal::Commit() {
  SHERD_RETURN_IF_ERROR(log_.Commit(batch_));
  batch_ = {};
  for (const std::function<void()>& effect : std::exchange(effects_, {})) effect();
  return absl::OkStatus();
}

absl::Status Journal::Compact() {
  const v1::StoredState stored = WriteState(state_);
  // The events go for it: it must be what they lead to, also when it is read.
  v1::StoredState again;
  absl::StatusOr<State> read = absl::InternalError("it cannot be parsed");
  if (again.ParseFromString(stored.SerializeAsString())) read = ReadState(again);
  SHERD_RETURN_IF_ERROR(read.status());
  if (WriteState(*read).SerializeAsString() != stored.SerializeAsString()) {
    return absl::InternalError("its snapshot reads as another state");
  }
  return log_.Compact(stored);
}

void Journal::Tidy(int64_t most_events) {
  // What is not stored yet may still be lost.
  if (!batch_.empty()) return;
  if (!forgotten_.empty()) {
    const absl::StatusOr<bool> dropped = log_.DropFeed(forgotten_.back(), kDroppedEntries);
    if (!dropped.ok()) Log(Severity::kWarning, dropped.status().message());
    if (!dropped.ok() || *dropped) forgotten_.pop_back();
  }
  if (uncompacted_ < most_events) return;
  uncompacted_ = 0;
  const absl::Status status = Compact();
  if (status.ok()) return;
  Log(Severity::kWarning,
      absl::StrCat("the event log was not compacted, which is tried again after ", most_events,
                   " events: ", status.message()));
}

void Journal::Seal() {
  if (!batch_.empty() || uncompacted_ == 0) return;
  const absl::Status status = Compact();
  if (status.ok()) {
    uncompacted_ = 0;
    return;
  }
  Log(Severity::kWarning,
      absl::StrCat("no snapshot covers the end of the event log, which only a version of the same "
                   "rules can read: ",
                   status.message()));
}

}  // namespace sherd
