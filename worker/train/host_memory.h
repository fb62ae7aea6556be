#pragma once

#include "absl/status/status.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// Whether `ranks` ranks of about the predicted size fit into what the host has available now.
// kResourceExhausted names the pools that take most. OK where the host does not tell.
absl::Status CheckHostMemory(const v1::RankLedger& predicted, int ranks);

}  // namespace sherd
