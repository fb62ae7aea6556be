#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// Whether `ranks` ranks of about the predicted size fit into what the host has available now. The
// `stored_for_bytes` of it (StoredForBytes) this rank alone takes: what the others store for ranks
// elsewhere is theirs to see. kResourceExhausted names the pools that take most. OK where the host
// does not tell.
absl::Status CheckHostMemory(const v1::RankLedger& predicted, int64_t stored_for_bytes, int ranks);

}  // namespace sherd
