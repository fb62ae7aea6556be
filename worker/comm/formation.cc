#include "worker/comm/formation.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/comm/link_address.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

constexpr char kLostMemberUrl[] = "sherd.dev/lost_member";

constexpr absl::Duration kReconnectAfter = absl::Milliseconds(20);
constexpr absl::Duration kProbeEvery = absl::Milliseconds(200);

// Tells a member or stranger why its link is closed; best effort, as the link goes in any case.
void Refuse(int link, absl::StatusCode code, std::string text) {
  (void)SendLinkMessage(link, LinkGoodbye{.code = code, .lost_peer = -1, .text = std::move(text)});
}

int PollMilliseconds(absl::Duration wait) {
  return static_cast<int>(absl::ToInt64Milliseconds(
      std::min(absl::Ceil(wait, absl::Milliseconds(1)), absl::Seconds(10))));
}

}  // namespace

absl::Status CheckGroup(const GroupSpec& group, Transport transport) {
  const auto size = static_cast<int64_t>(group.addresses.size());
  if (group.rank < 0 || group.rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", group.rank, " of ", group.group, " with ", size, " members"));
  }
  for (const std::string& address : group.addresses) {
    SHERD_ASSIGN_OR_RETURN(const LinkAddress parsed, ParseLinkAddress(address));
    if ((parsed.family() == AF_UNIX) != (transport == Transport::kShm)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data address '", address, "' is not one for ", group.group, " over ",
                       transport == Transport::kShm ? "shared memory" : "TCP"));
    }
  }
  for (const std::string* text : {&group.job_id, &group.group, &group.secret}) {
    if (text->size() > kMaxLinkStringBytes) {
      return absl::InvalidArgumentError(absl::StrCat("job, group or secret of ", group.group,
                                                     " is longer than ", kMaxLinkStringBytes,
                                                     " bytes"));
    }
  }
  return absl::OkStatus();
}

std::vector<int> LinksOf(const std::vector<Member>& members) {
  std::vector<int> links;
  for (const Member& member : members) links.push_back(member.link.get());
  return links;
}

absl::Status StatusOf(const LinkGoodbye& goodbye, int rank) {
  if (goodbye.code != absl::StatusCode::kOk) return absl::Status(goodbye.code, goodbye.text);
  return absl::AbortedError(absl::StrCat("rank ", rank, " left"));
}

absl::Status Blaming(int rank, absl::Status error) {
  error.SetPayload(kLostMemberUrl, absl::Cord(absl::StrCat(rank)));
  return error;
}

int LostMemberOf(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kLostMemberUrl);
  int rank = -1;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return -1;
  return rank;
}

Formation::Formation(LinkInbox& inbox, const GroupSpec& group, int own_segment,
                     const FormOptions& options, FormationAbort* abort)
    : inbox_(inbox),
      group_(group),
      key_(group.job_id, group.epoch, group.group, group.rank),
      own_segment_(own_segment),
      arena_bytes_(options.arena_bytes),
      timeout_(options.form_timeout),
      deadline_(options.form_timeout),
      abort_(abort),
      links_(group.addresses.size() * static_cast<size_t>(lanes())) {
  for (int index = 0; index < static_cast<int>(links_.size()); ++index) {
    Link& link = links_[static_cast<size_t>(index)];
    link.rank = index / lanes();
    link.lane = static_cast<LinkLane>(index % lanes());
  }
}

absl::StatusOr<std::vector<Member>> Formation::Run(const absl::Status& own, absl::Duration reach) {
  arrivals_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!arrivals_.valid() || (abort_ != nullptr && abort_->descriptor() < 0)) {
    const absl::Status none = absl::ResourceExhaustedError(
        absl::StrCat("rank ", group_.rank, " has no descriptor to form ", group_.group));
    ReachLowerRanks(reach);
    SayGoodbye(none);
    return none;
  }
  inbox_.Expect(key_, arrivals_.get());
  absl::Status formed = FormLinks(own, reach);
  if (!formed.ok()) {
    if (aborted()) formed = absl::AbortedError(abort_->reason());
    SayGoodbye(formed);
    return formed;
  }
  inbox_.Forget(key_);
  std::vector<Member> members(static_cast<size_t>(size()));
  for (Link& link : links_) {
    Member& member = members[static_cast<size_t>(link.rank)];
    (link.lane == LinkLane::kControl ? member.link : member.data) = std::move(link.socket);
    if (link.segment.mapped()) member.segment = std::move(link.segment);
  }
  return members;
}

absl::Status Formation::FormLinks(const absl::Status& own, absl::Duration reach) {
  while (true) {
    for (Link& link : links_) {
      if (link.rank == group_.rank || link.stage != Stage::kNoLink) continue;
      if (link.attempt.valid() || link.next_attempt.passed()) SHERD_RETURN_IF_ERROR(Attempt(link));
    }
    // Before anyone is given the segment, after linking to those that have to hear of it.
    if (!own.ok()) ReachLowerRanks(reach);
    if (aborted()) return absl::AbortedError(abort_->reason());
    SHERD_RETURN_IF_ERROR(own);
    SHERD_RETURN_IF_ERROR(ClaimArrivals());
    if (Complete()) return absl::OkStatus();
    if (deadline_.passed()) return Missing();
    SHERD_RETURN_IF_ERROR(Listen());
  }
}

void Formation::ReachLowerRanks(absl::Duration reach) {
  const Deadline deadline(reach);
  std::vector<Link*> missing;
  for (Link& link : links_) {
    if (link.rank < group_.rank && link.stage == Stage::kNoLink) missing.push_back(&link);
  }
  while (!missing.empty() && !aborted() && !deadline.passed()) {
    std::vector<pollfd> polled = {{abort_ == nullptr ? -1 : abort_->descriptor(), POLLIN, 0}};
    absl::Duration wait = deadline.left();
    for (const Link* link : missing) {
      if (link->attempt.valid()) {
        polled.push_back({link->attempt.get(), POLLOUT, 0});
      } else {
        wait = std::min(wait, link->next_attempt.left());
      }
    }
    ::poll(polled.data(), polled.size(), PollMilliseconds(wait));
    const auto done = [this](Link* link) {
      if (!link->attempt.valid() && !link->next_attempt.passed()) return false;
      // Where nobody is, nobody waits.
      return !Attempt(*link).ok() || link->stage != Stage::kNoLink;
    };
    missing.erase(std::remove_if(missing.begin(), missing.end(), done), missing.end());
  }
}

bool Formation::Complete() const {
  return std::all_of(links_.begin(), links_.end(), [this](const Link& link) {
    return link.rank == group_.rank || link.stage == Stage::kReady;
  });
}

absl::Status Formation::Attempt(Link& link) {
  const bool connects = link.rank < group_.rank;
  if (!link.attempt.valid()) {
    link.next_attempt = Deadline(connects ? kReconnectAfter : kProbeEvery);
    absl::StatusOr<FileDescriptor> socket = ConnectLink(address(link.rank));
    if (absl::IsUnavailable(socket.status())) return WentAway(link.rank);
    lack_ = IsOwnLack(socket.status()) ? socket.status() : absl::OkStatus();
    if (absl::IsResourceExhausted(socket.status())) return absl::OkStatus();  // again, later
    SHERD_RETURN_IF_ERROR(socket.status());
    link.attempt = *std::move(socket);
  }
  switch (CheckAttempt(link.attempt.get())) {
    case LinkAttempt::kUnderWay:
      return absl::OkStatus();
    case LinkAttempt::kRefused:
      return WentAway(link.rank);
    case LinkAttempt::kConnected:
      if (connects) return Introduce(link);
      break;
    case LinkAttempt::kFailed:
      break;
  }
  link.attempt.Close();
  return absl::OkStatus();
}

absl::Status Formation::Introduce(Link& link) {
  const LinkHello hello{.job_id = group_.job_id,
                        .epoch = group_.epoch,
                        .group = group_.group,
                        .secret = group_.secret,
                        .size = size(),
                        .from = group_.rank,
                        .to = link.rank,
                        .lane = link.lane};
  FileDescriptor socket = std::move(link.attempt);
  // Closed already: again, later.
  if (!SendLinkMessage(socket.get(), hello).ok()) return absl::OkStatus();
  link.socket = std::move(socket);
  link.stage = Stage::kSaidHello;
  return absl::OkStatus();
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
  if (hello.size != size() || hello.from <= group_.rank || hello.from >= size() ||
      static_cast<int>(hello.lane) >= lanes()) {
    const std::string text =
        absl::StrCat("rank ", hello.from, " sees ", hello.size, " members in ", group_.group,
                     " where rank ", group_.rank, " sees ", size());
    Refuse(arrival.link.get(), absl::StatusCode::kFailedPrecondition, text);
    return absl::FailedPreconditionError(text);
  }
  Link& link = this->link(hello.from, hello.lane);
  if (link.stage != Stage::kNoLink) {
    Refuse(arrival.link.get(), absl::StatusCode::kAlreadyExists,
           absl::StrCat("rank ", hello.from, " of ", group_.group, " has come already"));
    return absl::OkStatus();
  }
  link.attempt.Close();
  link.socket = std::move(arrival.link);
  link.stage = Stage::kSentSegment;
  return SendSegment(link);
}

absl::Status Formation::Listen() {
  std::vector<pollfd> polled = {{arrivals_.get(), POLLIN, 0}};
  if (abort_ != nullptr) polled.push_back({abort_->descriptor(), POLLIN, 0});
  const size_t first_link = polled.size();
  std::vector<Link*> heard;
  absl::Duration wait = deadline_.left();
  for (Link& link : links_) {
    if (link.rank == group_.rank) continue;
    if (link.stage != Stage::kNoLink) {
      // A ready data link has data of the first operation on it.
      const bool silent = link.stage == Stage::kReady && link.lane == LinkLane::kData;
      polled.push_back({silent ? -1 : link.socket.get(), POLLIN, 0});
      heard.push_back(&link);
    } else if (link.attempt.valid()) {
      polled.push_back({link.attempt.get(), POLLOUT, 0});
      heard.push_back(nullptr);
    } else {
      wait = std::min(wait, link.next_attempt.left());
    }
  }
  ::poll(polled.data(), polled.size(), PollMilliseconds(wait));
  for (size_t i = 0; i < heard.size(); ++i) {
    const bool stirs = polled[first_link + i].revents != 0;
    if (stirs && heard[i] != nullptr) SHERD_RETURN_IF_ERROR(Hear(*heard[i]));
  }
  return absl::OkStatus();
}

absl::Status Formation::Hear(Link& link) {
  const int rank = link.rank;
  ReceivedLinkMessage received = ReceiveLinkMessage(link.socket.get());
  switch (received.input) {
    case LinkInput::kNothing:
      return absl::OkStatus();
    case LinkInput::kClosed:
      if (link.stage != Stage::kSaidHello) return WentAway(rank);
      link.socket.Close();
      link.stage = Stage::kNoLink;
      link.next_attempt = Deadline(kReconnectAfter);
      return absl::OkStatus();
    case LinkInput::kMessage:
      if (const auto* goodbye = std::get_if<LinkGoodbye>(&received.message)) {
        return Blaming(goodbye->lost_peer >= 0 ? goodbye->lost_peer : rank,
                       StatusOf(*goodbye, rank));
      }
      if (const auto* segment = std::get_if<LinkSegment>(&received.message)) {
        return TakeSegment(link, *segment, received.attached);
      }
      break;
    case LinkInput::kGarbage:
      break;
  }
  return Blaming(rank, absl::UnavailableError(absl::StrCat(
                           "rank ", rank, " sent what is no part of forming ", group_.group)));
}

absl::Status Formation::TakeSegment(Link& link, const LinkSegment& segment,
                                    const FileDescriptor& descriptor) {
  if (!EqualSecrets(segment.secret, group_.secret) || link.stage == Stage::kReady) {
    return absl::PermissionDeniedError(
        absl::StrCat("rank ", link.rank, " of ", group_.group, " answered with a wrong secret"));
  }
  if (shares_memory()) {
    auto mapped = SharedSegment::Map(segment.arena_bytes, descriptor);
    if (!mapped.ok()) {
      return absl::Status(
          mapped.status().code(),
          absl::StrCat("rank ", link.rank, "'s segment: ", mapped.status().message()));
    }
    link.segment = *std::move(mapped);
  }
  if (link.stage == Stage::kSaidHello) SHERD_RETURN_IF_ERROR(SendSegment(link));
  link.stage = Stage::kReady;
  return absl::OkStatus();
}

absl::Status Formation::SendSegment(const Link& link) {
  const LinkSegment segment{.secret = group_.secret, .arena_bytes = arena_bytes_};
  const absl::Status sent = SendLinkMessage(link.socket.get(), segment, own_segment_);
  // It may have said why it went: that comes out of Hear.
  return absl::IsUnavailable(sent) ? absl::OkStatus() : sent;
}

void Formation::SayGoodbye(const absl::Status& status) {
  const LinkGoodbye goodbye = {
      .code = status.code(),
      .lost_peer = LostMemberOf(status),
      .text = aborted() ? absl::StrCat("rank ", group_.rank, " aborted: ", status.message())
                        : std::string(status.message())};
  for (Link& link : links_) {
    if (link.stage == Stage::kNoLink) continue;
    // Best effort: the link is closed right after. On a data lane that is ready, operations' data
    // are expected, and the control lane tells.
    const bool carries_data = link.lane == LinkLane::kData && link.stage == Stage::kReady;
    if (!carries_data) (void)SendLinkMessage(link.socket.get(), goodbye);
    CloseGently(link.socket);
  }
  inbox_.Close(key_, goodbye);
}

absl::Status Formation::Missing() const {
  if (!lack_.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat("rank ", group_.rank,
                                                     " cannot link to the other ranks of ",
                                                     group_.group, ": ", lack_.message()));
  }
  std::vector<int> missing;
  for (const Link& link : links_) {
    if (link.rank == group_.rank || link.stage == Stage::kReady) continue;
    if (missing.empty() || missing.back() != link.rank) missing.push_back(link.rank);
  }
  return Blaming(missing.front(),
                 absl::DeadlineExceededError(absl::StrCat(
                     "rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "), " of ",
                     group_.group, " did not come to form epoch ", group_.epoch, " of job ",
                     group_.job_id, " within ", absl::FormatDuration(timeout_))));
}

absl::Status Formation::WentAway(int rank) const {
  return Blaming(rank,
                 absl::UnavailableError(absl::StrCat("rank ", rank, " of ", group_.group, " at ",
                                                     address(rank), ": its process went away")));
}

}  // namespace sherd
