#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

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

// The first message of a link about a stored shard (worker/holdings): "keep this segment", which
// comes along, answered by a Goodbye; or "give me the one that you keep", answered by a Segment,
// with it, or a Goodbye that says why not.
struct LinkHolding {
  enum class Wish : uint8_t { kKeep = 0, kGive = 1 };
  Wish wish = Wish::kKeep;
  std::string job_id;
  // Whose shard it is: of rank `owner` of a world of `world` ranks in `epoch`.
  int64_t epoch = 0;
  int32_t world = 0;
  int32_t owner = 0;
  int64_t slot_bytes = 0;
};

using LinkMessage = std::variant<LinkHello, LinkSegment, LinkGoodbye, LinkHolding>;

// Strings of a message; a longer Goodbye text is cut, anything else is a caller's bug.
inline constexpr size_t kMaxLinkStringBytes = 2048;
inline constexpr size_t kMaxLinkMessageBytes = 16 << 10;

// Format: magic u32, version u8, kind u8, then the fields in order; integers little-endian, strings
// preceded by their length as u16.
std::string EncodeLinkMessage(const LinkMessage& message);
// kInvalidArgument for anything that EncodeLinkMessage does not make.
absl::StatusOr<LinkMessage> DecodeLinkMessage(absl::string_view bytes);

// Takes a time that does not depend on where the two differ.
bool EqualSecrets(absl::string_view a, absl::string_view b);

}  // namespace sherd
