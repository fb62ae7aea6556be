#include "worker/holdings/remote_version.h"

#include <poll.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "common/status_macros.h"
#include "worker/comm/deadline.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/version_stream.h"

namespace sherd {
namespace {

constexpr int kRetryMs = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteVersion>> RemoteVersion::Open(const std::string& address,
                                                                   const HoldingKey& key,
                                                                   int64_t slot_bytes, int64_t step,
                                                                   const std::string& secret,
                                                                   const FormationAbort& abort) {
  if (secret.size() > kMaxLinkStringBytes || key.job_id.size() > kMaxLinkStringBytes) {
    return absl::InvalidArgumentError("a job or secret that is too long for a link");
  }
  LinkHolding wish = WishFor(LinkHolding::Wish::kRead, key, slot_bytes, secret);
  wish.step = step;
  const Deadline deadline(kHoldingAnswerTime);
  while (true) {
    SHERD_ASSIGN_OR_RETURN(LinkStream stream,
                           LinkStream::Connect(address, {abort.descriptor()}, deadline));
    SHERD_RETURN_IF_ERROR(stream.Send(wish));
    const absl::StatusOr<LinkVersion> said = stream.Receive<LinkVersion>(AnswerTime(slot_bytes));
    if (said.ok() && said->step == step) {
      std::unique_ptr<RemoteVersion> version(new RemoteVersion(std::move(stream)));
      version->step_ = step;
      version->figures_ = {said->skipped_windows, said->loss};
      SHERD_ASSIGN_OR_RETURN(version->reports_, ReceiveReports(version->stream_, *said));
      return version;
    }
    if (said.ok()) return absl::UnavailableError("the process gave another step than was asked");
    // As many links as it serves: others end theirs soon.
    if (!absl::IsResourceExhausted(said.status()) || deadline.passed()) return said.status();
    pollfd ended = {abort.descriptor(), POLLIN, 0};
    ::poll(&ended, 1, kRetryMs);
  }
}

absl::Status RemoteVersion::Read(const std::vector<VersionRange>& ranges) {
  for (size_t first = 0; first < ranges.size(); first += LinkRanges::kMost) {
    SHERD_RETURN_IF_ERROR(
        ReadSome(&ranges[first], std::min(ranges.size() - first, LinkRanges::kMost)));
  }
  return absl::OkStatus();
}

absl::Status RemoteVersion::ReadSome(const VersionRange* ranges, size_t count) {
  LinkRanges wished;
  for (size_t at = 0; at < count; ++at) {
    wished.ranges.push_back({.begin = ranges[at].begin, .bytes = ranges[at].bytes});
  }
  SHERD_RETURN_IF_ERROR(stream_.Send(wished));
  const auto ignore = [](const std::byte*, int64_t) {};
  for (size_t at = 0; at < count; ++at) {
    const VersionRange& range = ranges[at];
    SHERD_RETURN_IF_ERROR(stream_.ReceiveBytes(range.to, range.bytes, ignore));
    std::byte sum[sizeof(uint64_t)];
    SHERD_RETURN_IF_ERROR(stream_.ReceiveBytes(sum, sizeof(sum), ignore));
    uint64_t checksum = 0;
    std::memcpy(&checksum, sum, sizeof(checksum));
    if (checksum != XXH3_64bits(range.to, static_cast<size_t>(range.bytes))) {
      return absl::DataLossError("its bytes have changed on the way");
    }
  }
  SHERD_ASSIGN_OR_RETURN(const LinkStored stored, stream_.Receive<LinkStored>());
  return stored.step == step_ ? absl::OkStatus()
                              : absl::UnavailableError("the process gave another step");
}

}  // namespace sherd
