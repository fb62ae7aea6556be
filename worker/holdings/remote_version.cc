#include "worker/holdings/remote_version.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "common/status_macros.h"
#include "worker/comm/deadline.h"
#include "worker/holdings/checksum_stream.h"
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

absl::Status RemoteVersion::Read(const std::vector<VersionRange>& ranges, const CopyWatch& watch) {
  for (size_t first = 0; first < ranges.size(); first += LinkRanges::kMost) {
    SHERD_RETURN_IF_ERROR(
        ReadSome(&ranges[first], std::min(ranges.size() - first, LinkRanges::kMost), watch));
  }
  return absl::OkStatus();
}

absl::Status RemoteVersion::ReadRange(const VersionRange& range, const CopyWatch& watch) {
  ChecksumStream checksum;
  absl::Status watched;
  SHERD_RETURN_IF_ERROR(
      stream_.ReceiveBytes(range.to, range.bytes, [&](const std::byte* piece, int64_t bytes) {
        checksum.Add(piece, bytes);
        if (watch && watched.ok()) watched = watch(bytes);
      }));
  SHERD_RETURN_IF_ERROR(watched);
  std::byte sum[sizeof(uint64_t)];
  SHERD_RETURN_IF_ERROR(stream_.ReceiveBytes(sum, sizeof(sum), [](const std::byte*, int64_t) {}));
  uint64_t sent = 0;
  std::memcpy(&sent, sum, sizeof(sent));
  if (sent == checksum.Sum()) return absl::OkStatus();
  return absl::DataLossError("its bytes have changed on the way");
}

absl::Status RemoteVersion::ReadSome(const VersionRange* ranges, size_t count,
                                     const CopyWatch& watch) {
  LinkRanges wished;
  for (size_t at = 0; at < count; ++at) {
    wished.ranges.push_back({.begin = ranges[at].begin, .bytes = ranges[at].bytes});
  }
  SHERD_RETURN_IF_ERROR(stream_.Send(wished));
  for (size_t at = 0; at < count; ++at) SHERD_RETURN_IF_ERROR(ReadRange(ranges[at], watch));
  SHERD_ASSIGN_OR_RETURN(const LinkStored stored, stream_.Receive<LinkStored>());
  return stored.step == step_ ? absl::OkStatus()
                              : absl::UnavailableError("the process gave another step");
}

}  // namespace sherd
