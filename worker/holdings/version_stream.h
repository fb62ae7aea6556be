#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sherd/v1/events.pb.h"
#include "worker/comm/link_message.h"
#include "worker/comm/link_stream.h"
#include "worker/holdings/holding_segment.h"

namespace sherd {

// How stored versions go over a LinkStream. Errors are those of LinkStream where nothing is said.

// How long a process may take that has to make room for a shard, or to look at all of one.
absl::Duration AnswerTime(int64_t slot_bytes);

LinkHolding WishFor(LinkHolding::Wish wish, const HoldingKey& key, int64_t slot_bytes,
                    const std::string& secret);
HoldingKey KeyOf(const LinkHolding& said);

// Sends what `slot` holds, without its bytes, and the reports of the steps after `reports_after`
// up to it. The step; kDataLoss when the slot holds nothing.
absl::StatusOr<int64_t> SendVersion(LinkStream& stream, const HoldingSegment& segment, int slot,
                                    int64_t reports_after);
// The reports that follow `version`. kInvalidArgument when they cannot be its.
absl::StatusOr<std::vector<v1::StepReport>> ReceiveReports(LinkStream& stream,
                                                           const LinkVersion& version);

// Stores in `segment`, for the process on the other end, what it sends: version by version, until
// it goes away (kUnavailable). kFailedPrecondition behind a fence, kInvalidArgument for what cannot
// be, kDataLoss when bytes have changed on the way; a slot that was not received whole and sound
// holds nothing.
absl::Status StoreVersions(LinkStream& stream, HoldingSegment& segment);

// Lets the process on the other end read `step` out of `segment`, until it goes away
// (kUnavailable). kNotFound when the segment does not hold it; kDataLoss when its bytes are not
// those that were stored, and nobody is told of it any more.
absl::Status ServeVersion(LinkStream& stream, HoldingSegment& segment, int64_t step);

}  // namespace sherd
