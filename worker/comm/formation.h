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
  SharedSegment segment;
};

// What a member's Goodbye means to the others.
absl::Status StatusOf(const LinkGoodbye& goodbye, int rank);

// One attempt to form one group: a link between every two members, the higher rank connecting to
// the lower, and each other's segment. Per link:
//   higher: Hello ->            <- Segment (lower)   Segment ->
// The lower rank answers a Hello only once its own formation runs, so either may come first. A link
// closed without Goodbye before that answer is opened again (a full inbox), and so is one to a full
// queue; a connection refused means that the member's process is gone.
class Formation {
 public:
  Formation(LinkInbox& inbox, const GroupSpec& group, int own_segment, const ShmOptions& options,
            FormationAbort* abort);
  Formation(const Formation&) = delete;

  // Every member by rank; the own place is empty. Errors are those of FormShmCommunicator. Call
  // once.
  absl::StatusOr<std::vector<Member>> Run();

 private:
  enum class Stage { kNoLink, kSaidHello, kSentSegment, kReady };
  struct Link {
    Stage stage = Stage::kNoLink;
    Deadline next_attempt{absl::ZeroDuration()};
    Member member;
  };

  absl::Status FormLinks();
  bool Complete() const;
  absl::Status Connect(int rank);
  // Looks whether the process of a higher rank that has not come is still there.
  absl::Status Probe(int rank);
  absl::Status ClaimArrivals();
  absl::Status Welcome(LinkInbox::Arrival arrival);
  absl::Status Listen();
  absl::Status Hear(int rank);
  absl::Status TakeSegment(int rank, const LinkSegment& segment, const FileDescriptor& descriptor);
  absl::Status SendSegment(int rank);
  // To all that have linked and to all that still will.
  void SayGoodbye(const absl::Status& status);
  absl::Status Missing() const;
  absl::Status WentAway(int rank) const;

  bool aborted() const { return abort_ != nullptr && abort_->aborted(); }
  int size() const { return static_cast<int>(group_.addresses.size()); }
  Link& link(int rank) { return links_[static_cast<size_t>(rank)]; }
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
  std::vector<Link> links_;  // by rank
};

}  // namespace sherd
