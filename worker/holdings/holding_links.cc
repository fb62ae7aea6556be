#include "worker/holdings/holding_links.h"

#include <poll.h>

#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_message.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

constexpr int kRetryMs = 5;
constexpr char kLocalScheme[] = "unix-abstract:";

HoldingKey KeyOf(const LinkHolding& said) {
  return {said.job_id, said.epoch, said.world, said.owner};
}

LinkHolding Wish(LinkHolding::Wish wish, const HoldingKey& key, int64_t slot_bytes) {
  LinkHolding message;
  message.wish = wish;
  message.job_id = key.job_id;
  message.epoch = key.epoch;
  message.world = key.world;
  message.owner = key.owner;
  message.slot_bytes = slot_bytes;
  return message;
}

LinkGoodbye GoodbyeOf(const absl::Status& status) {
  LinkGoodbye goodbye;
  goodbye.code = status.code();
  goodbye.text = std::string(status.message());
  return goodbye;
}

absl::Status Keep(HoldingStore& store, const LinkHolding& said, FileDescriptor attached) {
  SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                         HoldingSegment::Map(KeyOf(said), said.slot_bytes, std::move(attached)));
  return store.Keep(std::move(segment));
}

// A peer that went away, or does not read, has lost interest.
void Answer(FileDescriptor link, const LinkHolding& said, FileDescriptor attached,
            HoldingStore& store) {
  if (said.wish == LinkHolding::Wish::kKeep) {
    const absl::Status kept = Keep(store, said, std::move(attached));
    SendLinkMessage(link.get(), GoodbyeOf(kept)).IgnoreError();
    return;
  }
  const std::shared_ptr<HoldingSegment> segment = store.Find(KeyOf(said));
  if (segment == nullptr) {
    const absl::Status none = absl::NotFoundError(
        absl::StrCat("the process holds no shard of rank ", said.owner, " in epoch ", said.epoch));
    SendLinkMessage(link.get(), GoodbyeOf(none)).IgnoreError();
    return;
  }
  LinkSegment answer;
  answer.arena_bytes = segment->slot_bytes();
  SendLinkMessage(link.get(), answer, segment->descriptor()).IgnoreError();
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
  if (!absl::StartsWith(address, kLocalScheme)) {
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
    // Its queue of connections is full.
    if (!absl::IsResourceExhausted(link.status()) || deadline.passed()) return link.status();
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

HoldingServer::HoldingServer(DataListener& listener, HoldingStore& store) : listener_(listener) {
  listener_.ServeHoldings(
      [&store](FileDescriptor link, const LinkHolding& said, FileDescriptor attached) {
        Answer(std::move(link), said, std::move(attached), store);
      });
}

HoldingServer::~HoldingServer() { listener_.ServeHoldings(nullptr); }

absl::Status HandOver(const std::string& address, const HoldingSegment& segment,
                      const FormationAbort* abort) {
  SHERD_ASSIGN_OR_RETURN(
      const ReceivedLinkMessage received,
      Ask(address, Wish(LinkHolding::Wish::kKeep, segment.key(), segment.slot_bytes()),
          segment.descriptor(), abort));
  return StatusOf(received);
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> Obtain(const std::string& address,
                                                       const HoldingKey& key, int64_t slot_bytes,
                                                       const FormationAbort* abort) {
  SHERD_ASSIGN_OR_RETURN(
      ReceivedLinkMessage received,
      Ask(address, Wish(LinkHolding::Wish::kGive, key, slot_bytes), /*attached=*/-1, abort));
  if (!std::holds_alternative<LinkSegment>(received.message)) {
    const absl::Status refused = StatusOf(received);
    return refused.ok() ? absl::InternalError("the process answered out of order") : refused;
  }
  return HoldingSegment::Map(key, slot_bytes, std::move(received.attached));
}

}  // namespace sherd
