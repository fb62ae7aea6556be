#include "worker/holdings/remote_copy.h"

#include <poll.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/lost_holder.h"
#include "worker/holdings/version_stream.h"

namespace sherd {
namespace {

constexpr int kRetryMs = 20;
// Told of at once, so that also a slow network is seen to move.
constexpr int64_t kPieceBytes = 256 << 10;

// Not told yet, or as many links as it serves.
bool IsForLater(const absl::Status& refusal) {
  return absl::IsNotFound(refusal) || (absl::IsResourceExhausted(refusal) && !IsOwnLack(refusal));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteCopy>> RemoteCopy::Open(const std::string& address,
                                                             const HoldingSegment& segment,
                                                             const std::string& secret,
                                                             const FormationAbort& abort,
                                                             CopyWatch watch) {
  absl::StatusOr<EventSignal> left = EventSignal::Make();
  if (!left.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this rank's process has no descriptor left to have its shard stored by, at ", address));
  }
  std::unique_ptr<RemoteCopy> copy(
      new RemoteCopy(address, segment, abort, std::move(watch), *std::move(left)));
  const absl::Status connected = copy->Connect(secret);
  if (!connected.ok()) return copy->Explain(connected);
  return copy;
}

absl::Status RemoteCopy::Connect(const std::string& secret) {
  if (secret.size() > kMaxLinkStringBytes || segment_.key().job_id.size() > kMaxLinkStringBytes) {
    return absl::InvalidArgumentError("a job or secret that is too long for a link");
  }
  const LinkHolding wish =
      WishFor(LinkHolding::Wish::kStore, segment_.key(), segment_.slot_bytes(), secret);
  const Deadline deadline(kHoldingAnswerTime);
  while (true) {
    const absl::Status asked = AskOnce(wish, deadline);
    if (asked.ok() || !IsForLater(asked) || deadline.passed()) return asked;
    pollfd abort = {abort_.descriptor(), POLLIN, 0};
    ::poll(&abort, 1, kRetryMs);
  }
}

absl::Status RemoteCopy::AskOnce(const LinkHolding& wish, const Deadline& deadline) {
  SHERD_ASSIGN_OR_RETURN(
      LinkStream stream,
      LinkStream::Connect(address_, {abort_.descriptor(), left_.descriptor()}, deadline));
  SHERD_RETURN_IF_ERROR(stream.Send(wish));
  SHERD_RETURN_IF_ERROR(stream.Receive<LinkStored>(AnswerTime(wish.slot_bytes)).status());
  stream_ = std::make_unique<LinkStream>(std::move(stream));
  return absl::OkStatus();
}

absl::Status RemoteCopy::Send(int slot, int64_t reports_after) {
  const absl::StatusOr<int64_t> step = SendVersion(*stream_, segment_, slot, reports_after);
  if (!step.ok()) return Explain(step.status());
  const absl::Status sent = SendSlot(slot);
  if (!sent.ok()) return Explain(sent);
  sent_step_ = *step;
  sent_bytes_ += segment_.slot_bytes();
  return absl::OkStatus();
}

absl::Status RemoteCopy::SendSlot(int slot) {
  const int64_t bytes = segment_.slot_bytes();
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, bytes - at);
    SHERD_RETURN_IF_ERROR(stream_->SendBytes(segment_.slot(slot) + at, piece));
    if (watch_) SHERD_RETURN_IF_ERROR(watch_(piece));
  }
  return absl::OkStatus();
}

absl::Status RemoteCopy::AwaitStored() {
  const absl::StatusOr<LinkStored> stored = stream_->Receive<LinkStored>();
  if (!stored.ok()) return Explain(stored.status());
  if (stored->step == sent_step_) return absl::OkStatus();
  return Explain(absl::UnavailableError(
      absl::StrCat("it says step ", stored->step, " is stored, and not step ", sent_step_)));
}

absl::Status RemoteCopy::Explain(const absl::Status& error) const {
  if (abort_.aborted()) return absl::AbortedError(abort_.reason());
  if (IsOwnLack(error)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this rank's process cannot have its shard stored by the one at ", address_,
                     ": ", error.message()));
  }
  const bool over = absl::IsAborted(error) || absl::IsFailedPrecondition(error);
  const absl::Status explained(
      over ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable,
      absl::StrCat("the process at ", address_,
                   " does not store this rank's shard: ", error.message()));
  return over ? explained : WithLostHolder(explained, address_);
}

}  // namespace sherd
