#include "coordinator/runtime/journal.h"

#include <optional>
#include <utility>
#include <variant>

#include "common/status_macros.h"

namespace sherd {

absl::Status Journal::Recover() {
  // What the events asked for was done in the coordinator's earlier life, or is asked for again
  // when the workers come back.
  SHERD_RETURN_IF_ERROR(
      log_.Replay([this](const v1::DurableEvent& event) { Apply(event, state_); }));
  SHERD_ASSIGN_OR_RETURN(const std::vector<FeedSummary> feeds, log_.SummarizeFeeds());
  for (const FeedSummary& summary : feeds) feed_.Restore(summary);
  SHERD_ASSIGN_OR_RETURN(recovered_, log_.Acknowledgements());
  return absl::OkStatus();
}

Actions Journal::Append(v1::DurableEvent event) {
  event.set_sequence(state_.sequence + 1);
  event.set_time_unix_ms(absl::ToUnixMillis(clock_.Now()));
  Actions others;
  for (Action& action : Apply(event, state_)) {
    if (auto* publish = std::get_if<PublishFeed>(&action)) {
      Publish(std::move(publish->event));
    } else {
      others.push_back(std::move(action));
    }
  }
  batch_.events.push_back(std::move(event));
  ++appended_;
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

}  // namespace sherd
