#pragma once

#include <optional>

#include "sherd/v1/events.pb.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// What a worker says is kept for ever and shown on terminals: its texts are made printable and cut
// here.

// The durable event that a report makes, without its sender; nothing for reports that only users
// read.
std::optional<v1::RankChanged> MilestoneOf(const v1::RankReport& report);

// The checkpoint that a report says is saved, if it does.
std::optional<v1::CheckpointSaved> SavedCheckpointOf(const v1::RankReport& report);

// The feed entry that a report makes, without number and time; nothing for milestones. Steps and
// evaluations are those of rank 0: every rank computes the same.
std::optional<v1::JobEvent> FeedEntryOf(const v1::RankReport& report);

}  // namespace sherd
