#include "worker/comm/formation.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

constexpr absl::Duration kReconnectAfter = absl::Milliseconds(20);
constexpr absl::Duration kProbeEvery = absl::Milliseconds(200);

// Tells a member or stranger why its link is closed; best effort, as the link goes in any case.
void Refuse(int link, absl::StatusCode code, std::string text) {
  (void)SendLinkMessage(link, LinkGoodbye{.code = code, .lost_peer = -1, .text = std::move(text)});
}

}  // namespace

absl::Status StatusOf(const LinkGoodbye& goodbye, int rank) {
  if (goodbye.code != absl::StatusCode::kOk) return absl::Status(goodbye.code, goodbye.text);
  return absl::AbortedError(absl::StrCat("rank ", rank, " left"));
}

Formation::Formation(LinkInbox& inbox, const GroupSpec& group, int own_segment,
                     const ShmOptions& options, FormationAbort* abort)
    : inbox_(inbox),
      group_(group),
      key_(group.job_id, group.epoch, group.group, group.rank),
      own_segment_(own_segment),
      arena_bytes_(options.arena_bytes),
      timeout_(options.form_timeout),
      deadline_(options.form_timeout),
      abort_(abort),
      links_(group.addresses.size()) {}

absl::StatusOr<std::vector<Member>> Formation::Run() {
  arrivals_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!arrivals_.valid()) return absl::ResourceExhaustedError("no descriptor to form a group");
  inbox_.Expect(key_, arrivals_.get());
  absl::Status formed = FormLinks();
  if (!formed.ok()) {
    if (aborted()) formed = absl::AbortedError(abort_->reason());
    SayGoodbye(formed);
    return formed;
  }
  inbox_.Forget(key_);
  std::vector<Member> members;
  for (Link& link : links_) members.push_back(std::move(link.member));
  return members;
}

absl::Status Formation::FormLinks() {
  while (true) {
    for (int rank = 0; rank < size(); ++rank) {
      Link& link = this->link(rank);
      if (rank == group_.rank || link.stage != Stage::kNoLink || !link.next_attempt.passed()) {
        continue;
      }
      SHERD_RETURN_IF_ERROR(rank < group_.rank ? Connect(rank) : Probe(rank));
    }
    // Before anyone is given the segment, after linking to those that have to hear of it.
    if (aborted()) return absl::AbortedError(abort_->reason());
    SHERD_RETURN_IF_ERROR(ClaimArrivals());
    if (Complete()) return absl::OkStatus();
    if (deadline_.passed()) return Missing();
    SHERD_RETURN_IF_ERROR(Listen());
  }
}

bool Formation::Complete() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != group_.rank && links_[static_cast<size_t>(rank)].stage != Stage::kReady) {
      return false;
    }
  }
  return true;
}

absl::Status Formation::Connect(int rank) {
  Link& link = this->link(rank);
  link.next_attempt = Deadline(kReconnectAfter);
  absl::StatusOr<FileDescriptor> socket = ConnectLink(address(rank));
  if (absl::IsUnavailable(socket.status())) return WentAway(rank);
  if (absl::IsResourceExhausted(socket.status())) return absl::OkStatus();  // again, later
  SHERD_RETURN_IF_ERROR(socket.status());
  const LinkHello hello{.job_id = group_.job_id,
                        .epoch = group_.epoch,
                        .group = group_.group,
                        .secret = group_.secret,
                        .size = size(),
                        .from = group_.rank,
                        .to = rank};
  // Closed already: again, later.
  if (!SendLinkMessage(socket->get(), hello).ok()) return absl::OkStatus();
  link.member.link = *std::move(socket);
  link.stage = Stage::kSaidHello;
  return absl::OkStatus();
}

absl::Status Formation::Probe(int rank) {
  link(rank).next_attempt = Deadline(kProbeEvery);
  const absl::StatusOr<FileDescriptor> socket = ConnectLink(address(rank));
  if (absl::IsUnavailable(socket.status())) return WentAway(rank);
  return absl::IsInvalidArgument(socket.status()) ? socket.status() : absl::OkStatus();
}

absl::Status Formation::ClaimArrivals() {
  uint64_t events = 0;
  // Before Take: what arrives after it makes the descriptor readable again.
  (void)!::read(arrivals_.get(), &events, sizeof(events));
  for (LinkInbox::Arrival& arrival : inbox_.Take(key_)) {
    SHERD_RETURN_IF_ERROR(Welcome(std::move(arrival)));
  }
  return absl::OkStatus();
}

absl::Status Formation::Welcome(LinkInbox::Arrival arrival) {
  const LinkHello& hello = arrival.hello;
  if (!EqualSecrets(hello.secret, group_.secret)) {
    Log(Severity::kWarning, absl::StrCat("refused a data link to ", group_.group, " of job ",
                                         group_.job_id, ": wrong secret"));
    Refuse(arrival.link.get(), absl::StatusCode::kPermissionDenied,
           absl::StrCat("rank ", group_.rank, " of ", group_.group, " refused: wrong secret"));
    return absl::OkStatus();
  }
  // From here on it is a member that speaks.
  if (hello.size != size() || hello.from <= group_.rank || hello.from >= size()) {
    const std::string text =
        absl::StrCat("rank ", hello.from, " sees ", hello.size, " members in ", group_.group,
                     " where rank ", group_.rank, " sees ", size());
    Refuse(arrival.link.get(), absl::StatusCode::kFailedPrecondition, text);
    return absl::FailedPreconditionError(text);
  }
  if (link(hello.from).stage != Stage::kNoLink) {
    Refuse(arrival.link.get(), absl::StatusCode::kAlreadyExists,
           absl::StrCat("rank ", hello.from, " of ", group_.group, " has come already"));
    return absl::OkStatus();
  }
  link(hello.from).member.link = std::move(arrival.link);
  link(hello.from).stage = Stage::kSentSegment;
  return SendSegment(hello.from);
}

absl::Status Formation::Listen() {
  std::vector<pollfd> polled = {{arrivals_.get(), POLLIN, 0}};
  if (abort_ != nullptr) polled.push_back({abort_->descriptor(), POLLIN, 0});
  const size_t first_link = polled.size();
  std::vector<int> ranks;
  absl::Duration wait = deadline_.left();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == group_.rank) continue;
    const Link& link = this->link(rank);
    if (link.stage == Stage::kNoLink) {
      wait = std::min(wait, link.next_attempt.left());
    } else {
      polled.push_back({link.member.link.get(), POLLIN, 0});
      ranks.push_back(rank);
    }
  }
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(
      std::min(absl::Ceil(wait, absl::Milliseconds(1)), absl::Seconds(10))));
  ::poll(polled.data(), polled.size(), milliseconds);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (polled[first_link + i].revents != 0) SHERD_RETURN_IF_ERROR(Hear(ranks[i]));
  }
  return absl::OkStatus();
}

absl::Status Formation::Hear(int rank) {
  Link& link = this->link(rank);
  ReceivedLinkMessage received = ReceiveLinkMessage(link.member.link.get());
  switch (received.input) {
    case LinkInput::kNothing:
      return absl::OkStatus();
    case LinkInput::kClosed:
      if (link.stage != Stage::kSaidHello) return WentAway(rank);
      link.member.link.Close();
      link.stage = Stage::kNoLink;
      link.next_attempt = Deadline(kReconnectAfter);
      return absl::OkStatus();
    case LinkInput::kMessage:
      if (const auto* goodbye = std::get_if<LinkGoodbye>(&received.message)) {
        return StatusOf(*goodbye, rank);
      }
      if (const auto* segment = std::get_if<LinkSegment>(&received.message)) {
        return TakeSegment(rank, *segment, received.attached);
      }
      break;
    case LinkInput::kGarbage:
      break;
  }
  return absl::UnavailableError(
      absl::StrCat("rank ", rank, " sent what is no part of forming ", group_.group));
}

absl::Status Formation::TakeSegment(int rank, const LinkSegment& segment,
                                    const FileDescriptor& descriptor) {
  Link& link = this->link(rank);
  if (!EqualSecrets(segment.secret, group_.secret) || link.stage == Stage::kReady) {
    return absl::PermissionDeniedError(
        absl::StrCat("rank ", rank, " of ", group_.group, " answered with a wrong secret"));
  }
  auto mapped = SharedSegment::Map(segment.arena_bytes, descriptor);
  if (!mapped.ok()) {
    return absl::Status(mapped.status().code(),
                        absl::StrCat("rank ", rank, "'s segment: ", mapped.status().message()));
  }
  link.member.segment = *std::move(mapped);
  if (link.stage == Stage::kSaidHello) SHERD_RETURN_IF_ERROR(SendSegment(rank));
  link.stage = Stage::kReady;
  return absl::OkStatus();
}

absl::Status Formation::SendSegment(int rank) {
  const LinkSegment segment{.secret = group_.secret, .arena_bytes = arena_bytes_};
  const absl::Status sent = SendLinkMessage(link(rank).member.link.get(), segment, own_segment_);
  // It may have said why it went: that comes out of Hear.
  return absl::IsUnavailable(sent) ? absl::OkStatus() : sent;
}

void Formation::SayGoodbye(const absl::Status& status) {
  const LinkGoodbye goodbye = {
      .code = status.code(),
      .lost_peer = -1,
      .text = aborted() ? absl::StrCat("rank ", group_.rank, " aborted: ", status.message())
                        : std::string(status.message())};
  for (Link& link : links_) {
    if (link.stage == Stage::kNoLink) continue;
    // Best effort: the link is closed right after.
    (void)SendLinkMessage(link.member.link.get(), goodbye);
  }
  inbox_.Close(key_, goodbye);
}

absl::Status Formation::Missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != group_.rank && links_[static_cast<size_t>(rank)].stage != Stage::kReady) {
      missing.push_back(rank);
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat("rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "), " of ",
                   group_.group, " did not come to form epoch ", group_.epoch, " of job ",
                   group_.job_id, " within ", absl::FormatDuration(timeout_)));
}

absl::Status Formation::WentAway(int rank) const {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " of ", group_.group, " at ",
                                             address(rank), ": its process went away"));
}

}  // namespace sherd
