#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/map.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// Whether `ranks` ranks that are predicted to hold about that, by pool, fit into what the host has
// available now. The `stored_for_bytes` of it (StoredForBytes) this rank alone takes: what the
// others store for ranks elsewhere is theirs to see. kResourceExhausted names the pools that take
// most. OK where the host does not tell.
absl::Status CheckHostMemory(const google::protobuf::Map<std::string, v1::LedgerLine>& predicted,
                             int64_t stored_for_bytes, int ranks);

}  // namespace sherd
