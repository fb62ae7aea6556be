#include "worker/train/hand_over_shard.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/lost_holder.h"

namespace sherd {

absl::StatusOr<std::vector<std::unique_ptr<RemoteCopy>>> HandOverShard(
    const v1::Assignment& assignment, const HoldingSegment& segment, FormationAbort& abort,
    const CopyWatch& watch) {
  std::vector<std::unique_ptr<RemoteCopy>> copies;
  for (const std::string& holder : assignment.holders()) {
    if (!SharesMemory(holder)) {
      SHERD_ASSIGN_OR_RETURN(std::unique_ptr<RemoteCopy> copy,
                             RemoteCopy::Open(holder, segment, assignment.secret(), abort, watch));
      copies.push_back(std::move(copy));
      continue;
    }
    const absl::Status held = HandOver(holder, segment, assignment.secret(), &abort);
    if (absl::IsAborted(held)) return held;
    if (IsOwnLack(held)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this rank's process cannot have its shard held by the one at ", holder,
                       ": ", held.message()));
    }
    if (!held.ok()) {
      return WithLostHolder(
          absl::UnavailableError(absl::StrCat(
              "the process at ", holder, " does not hold this rank's shard: ", held.message())),
          holder);
    }
  }
  return copies;
}

}  // namespace sherd
