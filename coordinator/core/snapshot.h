#pragma once

#include "absl/status/statusor.h"
#include "coordinator/core/state.h"
#include "sherd/v1/coordinator_state.pb.h"

namespace sherd {

// Of StoredState. A reader refuses any newer one, and what is older than it can understand: of those
// that it can, later fields are absent and mean what they are at first. 2: broken links to holders,
// epochs that a log does not know, trials.
inline constexpr int32_t kStateFormat = 2;
inline constexpr int32_t kOldestStateFormat = 1;

// All of `state` as a message; ReadState makes an equal one of it.
v1::StoredState WriteState(const State& state);
// kDataLoss, with the end of a sentence that says what is wrong, for what no state looks like.
absl::StatusOr<State> ReadState(const v1::StoredState& stored);

}  // namespace sherd
