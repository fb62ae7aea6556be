#include "worker/holdings/lost_holder.h"

#include "absl/strings/cord.h"
#include "absl/types/optional.h"

namespace sherd {
namespace {

constexpr absl::string_view kPayload = "sherd/lost_holder";

}  // namespace

absl::Status WithLostHolder(absl::Status error, absl::string_view address) {
  error.SetPayload(kPayload, absl::Cord(address));
  return error;
}

std::string LostHolderOf(const absl::Status& error) {
  const absl::optional<absl::Cord> address = error.GetPayload(kPayload);
  return address ? std::string(*address) : "";
}

}  // namespace sherd
