#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sherd/v1/layout.pb.h"
#include "worker/checkpoint/file_system.h"
#include "worker/train/restore_checkpoint.h"

namespace sherd {

// A job's lineage (docs/checkpoints.md) is chosen when its training starts, and must be known to
// whoever leads a later epoch of it, perhaps before anything was saved: it stands in a hidden file
// below checkpoint.dir until the job has ended.

// A name that no other history of training has.
std::string NewLineage(absl::string_view job_id);

absl::Status RememberLineage(FileSystem& files, const std::string& root, absl::string_view job_id,
                             absl::string_view lineage);
// What that file says; "" without it.
std::string RememberedLineage(const std::string& root, absl::string_view job_id);
// "" when it cannot be told. Without the file it is that of what the job saved last, before
// `epoch`.
std::string RecallLineage(FileSystem& files, const std::string& root, absl::string_view job_id,
                          int64_t epoch);
// Of a rank 0 that begins an epoch, perhaps after a checkpoint. What goes on from memory or from
// the newest checkpoint of a lineage belongs to it.
std::string ChooseLineage(FileSystem& files, const std::string& root,
                          const v1::Assignment& assignment,
                          const std::optional<RestoredCheckpoint>& restored);
// Best effort.
void ForgetLineage(FileSystem& files, const std::string& root, absl::string_view job_id);

}  // namespace sherd
