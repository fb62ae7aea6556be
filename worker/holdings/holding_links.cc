#include "worker/holdings/holding_links.h"

#include <poll.h>

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_message.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/version_stream.h"

namespace sherd {
namespace {

constexpr int kRetryMs = 5;
constexpr char kLocalScheme[] = "unix-abstract:";

LinkGoodbye GoodbyeOf(const absl::Status& status) {
  LinkGoodbye goodbye;
  goodbye.code = status.code();
  goodbye.text = std::string(status.message());
  return goodbye;
}

absl::Status Keep(HoldingStore& store, const LinkHolding& said, FileDescriptor attached) {
  SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                         HoldingSegment::Map(KeyOf(said), said.slot_bytes, std::move(attached)));
  return store.Keep(std::move(segment), said.secret);
}

// A peer that went away, or does not read, has lost interest.
void AnswerInDomain(int link, const LinkHolding& said, FileDescriptor attached,
                    HoldingStore& store) {
  if (said.wish == LinkHolding::Wish::kKeep) {
    const absl::Status kept = Keep(store, said, std::move(attached));
    SendLinkMessage(link, GoodbyeOf(kept)).IgnoreError();
    return;
  }
  const std::shared_ptr<HoldingSegment> segment = store.Find(KeyOf(said));
  if (segment == nullptr) {
    const absl::Status none = absl::NotFoundError(
        absl::StrCat("the process holds no shard of rank ", said.owner, " in epoch ", said.epoch));
    SendLinkMessage(link, GoodbyeOf(none)).IgnoreError();
    return;
  }
  LinkSegment answer;
  answer.arena_bytes = segment->slot_bytes();
  SendLinkMessage(link, answer, segment->descriptor()).IgnoreError();
}

// That of a link that has ended otherwise than by its peer's or its epoch's end.
void Tell(const HoldingKey& key, const absl::Status& end) {
  if (absl::IsUnavailable(end) || absl::IsAborted(end) || absl::IsFailedPrecondition(end)) return;
  Log(Severity::kWarning,
      absl::StrCat("a link about the stored shard of rank ", key.owner, " of job ", key.job_id,
                   ", epoch ", key.epoch, ", has ended: ", end.message()));
}

// Waits for the answer to a wish.
absl::StatusOr<ReceivedLinkMessage> Await(int link, const FormationAbort* abort,
                                          const Deadline& deadline) {
  while (true) {
    ReceivedLinkMessage received = ReceiveLinkMessage(link);
    if (received.input == LinkInput::kMessage) return received;
    if (received.input != LinkInput::kNothing) {
      return absl::UnavailableError("the process went away");
    }
    if (abort != nullptr && abort->aborted()) return absl::AbortedError(abort->reason());
    if (deadline.passed()) {
      return absl::DeadlineExceededError(absl::StrCat("the process did not answer within ",
                                                      absl::FormatDuration(kHoldingAnswerTime)));
    }
    pollfd waiting[] = {{link, POLLIN, 0}, {-1, POLLIN, 0}};
    if (abort != nullptr) waiting[1].fd = abort->descriptor();
    ::poll(waiting, 2, static_cast<int>(absl::ToInt64Milliseconds(deadline.left())) + 1);
  }
}

absl::StatusOr<ReceivedLinkMessage> Ask(const std::string& address, const LinkHolding& wish,
                                        int attached, const FormationAbort* abort) {
  if (!SharesMemory(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory cannot be shared with the process at ", address));
  }
  const Deadline deadline(kHoldingAnswerTime);
  while (true) {
    absl::StatusOr<FileDescriptor> link = ConnectLink(address);
    if (link.ok()) {
      SHERD_RETURN_IF_ERROR(SendLinkMessage(link->get(), wish, attached));
      return Await(link->get(), abort, deadline);
    }
    const bool queue_full = absl::IsResourceExhausted(link.status()) && !IsOwnLack(link.status());
    if (!queue_full || deadline.passed()) return link.status();
    if (abort != nullptr && abort->aborted()) return absl::AbortedError(abort->reason());
    ::poll(nullptr, 0, kRetryMs);
  }
}

// What a Goodbye says, which is an error where a segment was wished for.
absl::Status StatusOf(const ReceivedLinkMessage& received) {
  const auto* goodbye = std::get_if<LinkGoodbye>(&received.message);
  if (goodbye == nullptr) return absl::InternalError("the process answered out of order");
  return absl::Status(goodbye->code, goodbye->text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HoldingServer>> HoldingServer::Start(DataListener& listener,
                                                                    HoldingStore& store) {
  SHERD_ASSIGN_OR_RETURN(EventSignal stop, EventSignal::Make());
  return std::unique_ptr<HoldingServer>(new HoldingServer(listener, store, std::move(stop)));
}

HoldingServer::HoldingServer(DataListener& listener, HoldingStore& store, EventSignal stop)
    : listener_(listener), store_(store), threads_(std::move(stop)) {
  listener_.ServeHoldings(
      [this](FileDescriptor link, const LinkHolding& said, FileDescriptor attached) {
        Answer(std::move(link), said, std::move(attached));
      });
}

HoldingServer::~HoldingServer() { listener_.ServeHoldings(nullptr); }

void HoldingServer::Answer(FileDescriptor link, const LinkHolding& said, FileDescriptor attached) {
  const bool in_domain =
      said.wish == LinkHolding::Wish::kKeep || said.wish == LinkHolding::Wish::kGive;
  if (IsTcpLink(link.get()) == in_domain) {
    const absl::Status wrong =
        absl::InvalidArgumentError("this cannot be wished over a link of this kind");
    SendLinkMessage(link.get(), GoodbyeOf(wrong)).IgnoreError();
    return;
  }
  if (in_domain) return AnswerInDomain(link.get(), said, std::move(attached), store_);
  const absl::Status served = Serve(link, said);
  if (served.ok()) return;
  // Without a word of a stranger's.
  if (absl::IsPermissionDenied(served)) {
    Log(Severity::kWarning, "refused a link about a stored shard: it may not be had or kept");
  }
  SendLinkMessage(link.get(), GoodbyeOf(served)).IgnoreError();
  CloseGently(link);
}

absl::Status HoldingServer::Serve(FileDescriptor& link, const LinkHolding& said) {
  std::shared_ptr<const EventSignal> over;
  if (said.wish == LinkHolding::Wish::kStore) {
    SHERD_ASSIGN_OR_RETURN(over, store_.Admit(KeyOf(said), said.secret));
  } else {
    SHERD_RETURN_IF_ERROR(store_.FindFor(KeyOf(said), said.secret).status());
  }
  const auto taken = std::make_shared<FileDescriptor>(std::move(link));
  const bool started = threads_.Start([this, said, over, taken] {
    std::vector<int> ends = {threads_.stop().descriptor()};
    if (over != nullptr) ends.push_back(over->descriptor());
    LinkStream stream(std::move(*taken), std::move(ends));
    absl::Status end = Work(stream, said);
    const bool epoch_over = over != nullptr && over->is_set();
    if (absl::IsAborted(end) && !epoch_over) end = absl::UnavailableError("the process ends");
    Tell(KeyOf(said), end);
    stream.Close(end);
  });
  if (started) return absl::OkStatus();
  link = std::move(*taken);
  return absl::ResourceExhaustedError("the process serves as many links as it can");
}

absl::Status HoldingServer::Work(LinkStream& stream, const LinkHolding& said) {
  if (said.wish == LinkHolding::Wish::kStore) {
    SHERD_ASSIGN_OR_RETURN(const std::shared_ptr<HoldingSegment> segment,
                           store_.MakeFor(KeyOf(said), said.slot_bytes, said.secret));
    return StoreVersions(stream, *segment);
  }
  SHERD_ASSIGN_OR_RETURN(const std::shared_ptr<HoldingSegment> segment,
                         store_.FindFor(KeyOf(said), said.secret));
  if (segment->slot_bytes() != said.slot_bytes) {
    return absl::InvalidArgumentError("the shard is of another size");
  }
  return ServeVersion(stream, *segment, said.step);
}

absl::Status HandOver(const std::string& address, const HoldingSegment& segment,
                      const std::string& secret, const FormationAbort* abort) {
  SHERD_ASSIGN_OR_RETURN(
      const ReceivedLinkMessage received,
      Ask(address, WishFor(LinkHolding::Wish::kKeep, segment.key(), segment.slot_bytes(), secret),
          segment.descriptor(), abort));
  return StatusOf(received);
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> Obtain(const std::string& address,
                                                       const HoldingKey& key, int64_t slot_bytes,
                                                       const FormationAbort* abort) {
  SHERD_ASSIGN_OR_RETURN(
      ReceivedLinkMessage received,
      Ask(address, WishFor(LinkHolding::Wish::kGive, key, slot_bytes, /*secret=*/""),
          /*attached=*/-1, abort));
  if (!std::holds_alternative<LinkSegment>(received.message)) {
    const absl::Status refused = StatusOf(received);
    return refused.ok() ? absl::InternalError("the process answered out of order") : refused;
  }
  return HoldingSegment::Map(key, slot_bytes, std::move(received.attached));
}

bool SharesMemory(absl::string_view address) { return absl::StartsWith(address, kLocalScheme); }

}  // namespace sherd
