#pragma once

#include "absl/status/statusor.h"
#include "coordinator/core/state.h"
#include "sherd/v1/coordinator_state.pb.h"

namespace sherd {

// Of StoredState. What was added since a lower one is as if nothing of it had happened; a higher
// one is refused. 2: broken links to holders, epochs that a log does not know.
inline constexpr int32_t kStateFormat = 2;

// All of `state` as a message; ReadState makes an equal one of it.
v1::StoredState WriteState(const State& state);
// kDataLoss, with the end of a sentence that says what is wrong, for what no state looks like.
absl::StatusOr<State> ReadState(const v1::StoredState& stored);

}  // namespace sherd
