#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/data_link.h"
#include "worker/holdings/holding_segment.h"
#include "worker/holdings/holding_store.h"

namespace sherd {

// Other processes keep segments here, and are given those that are kept here, for as long as it
// lives. `listener` and `store` must outlive it.
class HoldingServer {
 public:
  HoldingServer(DataListener& listener, HoldingStore& store);
  ~HoldingServer();
  HoldingServer(const HoldingServer&) = delete;

 private:
  DataListener& listener_;
};

// How long another process may take to answer.
inline constexpr absl::Duration kHoldingAnswerTime = absl::Seconds(5);

// Has the process at `address` keep `segment`. Blocks until it does. kAborted after abort->Abort;
// kUnavailable when it is gone; kDeadlineExceeded; and its reasons, kFailedPrecondition for an
// epoch that it has sealed among them. Only within a shared-memory domain: kInvalidArgument else.
absl::Status HandOver(const std::string& address, const HoldingSegment& segment,
                      const FormationAbort* abort);

// The segment of `key` that the process at `address` keeps. Errors as above; kNotFound when it has
// none.
absl::StatusOr<std::shared_ptr<HoldingSegment>> Obtain(const std::string& address,
                                                       const HoldingKey& key, int64_t slot_bytes,
                                                       const FormationAbort* abort);

}  // namespace sherd
