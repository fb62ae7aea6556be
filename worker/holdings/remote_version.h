#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sherd/v1/events.pb.h"
#include "worker/comm/data_link.h"
#include "worker/comm/link_stream.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/holding_segment.h"

namespace sherd {

// Bytes of a version, and where they are to be.
struct VersionRange {
  int64_t begin = 0;
  int64_t bytes = 0;
  std::byte* to = nullptr;
};

// A version in the memory of a process on another host, open for reading. Its holder has looked
// whether all of it is what was stored. Not thread-safe.
// Errors: kAborted after abort.Abort; what the holder says, kNotFound, kDataLoss and
// kPermissionDenied among it; by IsOwnLack when this process can open no socket; else kUnavailable,
// kDeadlineExceeded.
class RemoteVersion {
 public:
  // `step` of `key`, by the process at `address` ("tcp:HOST:PORT"). `abort` must outlive it.
  static absl::StatusOr<std::unique_ptr<RemoteVersion>> Open(const std::string& address,
                                                             const HoldingKey& key,
                                                             int64_t slot_bytes, int64_t step,
                                                             const std::string& secret,
                                                             const FormationAbort& abort);
  RemoteVersion(const RemoteVersion&) = delete;

  // Straight to where they are to be; kDataLoss when they have changed on the way; the error of
  // `watch`, which goes along.
  absl::Status Read(const std::vector<VersionRange>& ranges, const CopyWatch& watch = nullptr);

  const VersionFigures& figures() const { return figures_; }
  // Of the last steps up to it.
  const std::vector<v1::StepReport>& reports() const { return reports_; }

 private:
  explicit RemoteVersion(LinkStream stream) : stream_(std::move(stream)) {}
  absl::Status ReadSome(const VersionRange* ranges, size_t count, const CopyWatch& watch);
  absl::Status ReadRange(const VersionRange& range, const CopyWatch& watch);

  LinkStream stream_;
  int64_t step_ = 0;
  VersionFigures figures_;
  std::vector<v1::StepReport> reports_;
};

}  // namespace sherd
