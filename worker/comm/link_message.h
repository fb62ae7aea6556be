#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

// What members of a group say to each other over a data link. A link carries one Hello (from the
// member of the higher rank), a Segment in each direction, and a Goodbye in each direction; an end
// of the link without Goodbye is the death of the peer's process.

// What travels on a link between two members besides these messages: nothing, or the data of
// collectives, which follow Segment in both directions and take the place of Goodbye.
enum class LinkLane : uint8_t { kControl = 0, kData = 1 };

// "I am rank `from` of this group and want rank `to`."
struct LinkHello {
  std::string job_id;
  int64_t epoch = 0;
  std::string group;
  std::string secret;
  int32_t size = 0;
  int32_t from = 0;
  int32_t to = 0;
  LinkLane lane = LinkLane::kControl;
};

// "I know the secret too." Comes with the descriptor of the sender's segment where the group shares
// memory.
struct LinkSegment {
  std::string secret;
  int64_t arena_bytes = 0;
};

// The sender takes no further part. kOk: it left after its last operation; else why its
// communicator ended, in words that name ranks so that they can be passed on.
struct LinkGoodbye {
  absl::StatusCode code = absl::StatusCode::kOk;
  // The member whose process went away, when that is why; -1 else.
  int32_t lost_peer = -1;
  std::string text;
};

// The first message of a link about a stored shard (worker/holdings). Between processes that share
// memory: "keep this segment", which comes along, answered by a Goodbye; or "give me the one that
// you keep", answered by a Segment, with it, or a Goodbye that says why not. Over TCP: "store what
// I send", answered by Stored; or "let me read this step", answered by Version; or by a Goodbye.
struct LinkHolding {
  enum class Wish : uint8_t { kKeep = 0, kGive = 1, kStore = 2, kRead = 3 };
  Wish wish = Wish::kKeep;
  std::string job_id;
  // Whose shard it is: of rank `owner` of a world of `world` ranks in `epoch`.
  int64_t epoch = 0;
  int32_t world = 0;
  int32_t owner = 0;
  int64_t slot_bytes = 0;
  // Of kRead.
  int64_t step = 0;
  // Of the epoch: nothing is stored or read over TCP without it.
  std::string secret;
};

// What a slot holds whole. `reports` of them follow, in as many Reports as they need; then, from an
// owner, the slot's bytes.
struct LinkVersion {
  int32_t slot = 0;
  int64_t step = 0;
  uint64_t checksum = 0;
  int64_t skipped_windows = 0;
  double loss = 0;
  int32_t reports = 0;
};

// A step's report, as v1::StepReport.
struct LinkReport {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;
  double tokens_per_second = 0;
  double step_ms = 0;
  double exposed_ms = 0;
  int64_t skipped_windows = 0;
};
struct LinkReports {
  static constexpr size_t kMost = 128;
  std::vector<LinkReport> reports;
};

// "Send me these bytes of the slot." Answered by the bytes of each range and their checksum (u64),
// and, if the slot holds the version still, by Stored.
struct LinkRanges {
  static constexpr size_t kMost = 512;
  struct Range {
    int64_t begin = 0;
    int64_t bytes = 0;
  };
  std::vector<Range> ranges;
};

// "I hold this step whole"; 0: nothing yet.
struct LinkStored {
  int64_t step = 0;
};

using LinkMessage = std::variant<LinkHello, LinkSegment, LinkGoodbye, LinkHolding, LinkVersion,
                                 LinkReports, LinkRanges, LinkStored>;

// Strings of a message; a longer Goodbye text is cut, anything else is a caller's bug.
inline constexpr size_t kMaxLinkStringBytes = 2048;
inline constexpr size_t kMaxLinkMessageBytes = 16 << 10;

// Format: magic u32, version u8, kind u8, then the fields in order; integers little-endian, numbers
// with a point by their bits, strings and lists preceded by their length as u16.
std::string EncodeLinkMessage(const LinkMessage& message);
// kInvalidArgument for anything that EncodeLinkMessage does not make.
absl::StatusOr<LinkMessage> DecodeLinkMessage(absl::string_view bytes);

// Takes a time that does not depend on where the two differ.
bool EqualSecrets(absl::string_view a, absl::string_view b);

}  // namespace sherd
