#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/comm/data_link.h"
#include "worker/comm/link_stream.h"
#include "worker/holdings/holding_segment.h"
#include "worker/holdings/holding_store.h"
#include "worker/holdings/link_threads.h"

namespace sherd {

// Other processes keep segments here, or have them stored, and are given those that are kept here,
// for as long as it lives. Links over TCP have threads of their own, which end with them, with
// their epoch, or with this. `listener` and `store` must outlive it.
class HoldingServer {
 public:
  // kResourceExhausted when the process has no descriptor left.
  static absl::StatusOr<std::unique_ptr<HoldingServer>> Start(DataListener& listener,
                                                              HoldingStore& store);
  ~HoldingServer();
  HoldingServer(const HoldingServer&) = delete;

  // Links over TCP that are served now.
  size_t links() const { return threads_.running(); }

 private:
  HoldingServer(DataListener& listener, HoldingStore& store, EventSignal stop);
  void Answer(FileDescriptor link, const LinkHolding& said, FileDescriptor attached);
  // What is wished over TCP, on a thread of its own. Not OK: nothing is, and `link` is left.
  absl::Status Serve(FileDescriptor& link, const LinkHolding& said);
  absl::Status Work(LinkStream& stream, const LinkHolding& said);

  DataListener& listener_;
  HoldingStore& store_;
  LinkThreads threads_;
};

// How long another process may take to answer.
inline constexpr absl::Duration kHoldingAnswerTime = absl::Seconds(5);

// Has the process at `address` keep `segment`, of an epoch of this secret. Blocks until it does.
// kAborted after abort->Abort; kUnavailable when it is gone; kDeadlineExceeded; and its reasons,
// kFailedPrecondition for an epoch that it has sealed among them; by IsOwnLack, at once, when this
// process can open no socket. Only within a shared-memory domain: kInvalidArgument else.
absl::Status HandOver(const std::string& address, const HoldingSegment& segment,
                      const std::string& secret, const FormationAbort* abort);

// The segment of `key` that the process at `address` keeps. Errors as above; kNotFound when it has
// none.
absl::StatusOr<std::shared_ptr<HoldingSegment>> Obtain(const std::string& address,
                                                       const HoldingKey& key, int64_t slot_bytes,
                                                       const FormationAbort* abort);

// Whether memory can be shared with the process at `address`; else what is stored there is a
// RemoteCopy, and what is read from there a RemoteVersion.
bool SharesMemory(absl::string_view address);

}  // namespace sherd
