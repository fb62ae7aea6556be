#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/data_link.h"
#include "worker/comm/deadline.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_inbox.h"
#include "worker/comm/link_message.h"
#include "worker/comm/shared_segment.h"

namespace sherd {

// Another member of a formed group.
struct Member {
  FileDescriptor link;
  SharedSegment segment;  // where the group shares memory
  FileDescriptor data;    // and else
};

// The members' links by rank, -1 for the own.
std::vector<int> LinksOf(const std::vector<Member>& members);

// kInvalidArgument for a group that cannot be.
absl::Status CheckGroup(const GroupSpec& group, Transport transport);

// What the Goodbye of member `rank` means to the others.
absl::Status StatusOf(const LinkGoodbye& goodbye, int rank);

// The member that a formation failed for, by its rank in the group: it went away, did not come, or
// left for what it said. -1 when `error` is this member's own.
int LostMemberOf(const absl::Status& error);
// `error`, which is there because of member `rank`.
absl::Status Blaming(int rank, absl::Status error);

// One attempt to form one group: a link between every two members, the higher rank connecting to
// the lower, and each other's segment; or, where members share no memory, a second link for data.
// Per link:
//   higher: Hello ->            <- Segment (lower)   Segment ->
// The lower rank answers a Hello only once its own formation runs, so either may come first. A link
// closed without Goodbye before that answer is opened again (a full inbox), and so is one to a full
// queue; a connection refused means that the member's process is gone.
class Formation {
 public:
  // `own_segment` is -1 in a group that shares no memory, and kNoSegment where it could not be
  // made.
  static constexpr int kNoSegment = -2;
  Formation(LinkInbox& inbox, const GroupSpec& group, int own_segment, const FormOptions& options,
            FormationAbort* abort);
  Formation(const Formation&) = delete;

  // Every member by rank; the own place is empty. Errors are those of FormCommunicator. Call once.
  // Where this member cannot be one of the group, by `own`, that is the error, of the others, too:
  // those of lower rank are told if they are reached within `reach`.
  absl::StatusOr<std::vector<Member>> Run(const absl::Status& own = absl::OkStatus(),
                                          absl::Duration reach = absl::Milliseconds(300));

 private:
  enum class Stage { kNoLink, kSaidHello, kSentSegment, kReady };
  struct Link {
    int rank = -1;
    LinkLane lane = LinkLane::kControl;
    Stage stage = Stage::kNoLink;
    Deadline next_attempt{absl::ZeroDuration()};
    // A connection that may not have come about yet: to a lower rank, or to see whether the process
    // of a higher one is there.
    FileDescriptor attempt;
    FileDescriptor socket;
    SharedSegment segment;
  };

  absl::Status FormLinks(const absl::Status& own, absl::Duration reach);
  // Links to every lower rank that it can within `reach`; an abort ends it.
  void ReachLowerRanks(absl::Duration reach);
  bool Complete() const;
  // Goes on with linking to a lower rank, or with looking after a higher one that has not come.
  absl::Status Attempt(Link& link);
  absl::Status Introduce(Link& link);
  absl::Status ClaimArrivals();
  absl::Status Welcome(LinkInbox::Arrival arrival);
  absl::Status Listen();
  absl::Status Hear(Link& link);
  absl::Status TakeSegment(Link& link, const LinkSegment& segment,
                           const FileDescriptor& descriptor);
  absl::Status SendSegment(const Link& link);
  // To all that have linked and to all that still will.
  void SayGoodbye(const absl::Status& status);
  absl::Status Missing() const;
  absl::Status WentAway(int rank) const;

  bool aborted() const { return abort_ != nullptr && abort_->aborted(); }
  int size() const { return static_cast<int>(group_.addresses.size()); }
  bool shares_memory() const { return own_segment_ != -1; }
  int lanes() const { return shares_memory() ? 1 : 2; }
  Link& link(int rank, LinkLane lane) {
    return links_[static_cast<size_t>(rank * lanes() + static_cast<int>(lane))];
  }
  const std::string& address(int rank) const { return group_.addresses[static_cast<size_t>(rank)]; }

  LinkInbox& inbox_;
  const GroupSpec& group_;
  const LinkInbox::Key key_;
  const int own_segment_;
  const int64_t arena_bytes_;
  const absl::Duration timeout_;
  const Deadline deadline_;
  FormationAbort* const abort_;
  FileDescriptor arrivals_;  // readable when the inbox has a link for us
  absl::Status lack_;        // of sockets, as the last attempt found it
  std::vector<Link> links_;  // by rank, then lane; those of the own rank stay empty
};

}  // namespace sherd
