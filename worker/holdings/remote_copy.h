#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/data_link.h"
#include "worker/comm/event_signal.h"
#include "worker/comm/link_stream.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/holding_segment.h"

namespace sherd {

// A rank's shard as a process on another host stores it, in memory of its own, slot by slot like
// the rank's segment. The link to it is open as long as this lives. Not thread-safe but for Leave.
// Errors of all calls name the address: kAborted when the epoch has ended there, or here by the
// abort or by Leave; kUnavailable else.
class RemoteCopy {
 public:
  // Has the process at `address` ("tcp:HOST:PORT") store `segment`'s versions from now on. One that
  // has not been told yet that it is to is asked again, for kHoldingAnswerTime. `watch`
  // goes along with what is sent. `segment` and `abort` must outlive it. Also kResourceExhausted,
  // which is nobody else's doing, when this process has no descriptor left for it.
  static absl::StatusOr<std::unique_ptr<RemoteCopy>> Open(const std::string& address,
                                                          const HoldingSegment& segment,
                                                          const std::string& secret,
                                                          const FormationAbort& abort,
                                                          CopyWatch watch = nullptr);
  RemoteCopy(const RemoteCopy&) = delete;

  // Sends the version that `slot` holds whole, with the reports of the steps after `reports_after`.
  absl::Status Send(int slot, int64_t reports_after);
  // Returns when it is stored there.
  absl::Status AwaitStored();
  // From any thread: ends what is under way, and all that comes.
  void Leave() { left_.Set(); }

  // Of shards, so far.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  RemoteCopy(const std::string& address, const HoldingSegment& segment, const FormationAbort& abort,
             CopyWatch watch, EventSignal left)
      : address_(address),
        segment_(segment),
        abort_(abort),
        watch_(std::move(watch)),
        left_(std::move(left)) {}
  absl::Status Connect(const std::string& secret);
  absl::Status AskOnce(const LinkHolding& wish, const Deadline& deadline);
  absl::Status SendSlot(int slot);
  absl::Status Explain(const absl::Status& error) const;

  const std::string address_;
  const HoldingSegment& segment_;
  const FormationAbort& abort_;
  const CopyWatch watch_;
  const EventSignal left_;
  std::unique_ptr<LinkStream> stream_;
  int64_t sent_step_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace sherd
