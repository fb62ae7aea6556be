#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// Every rank's text, which has no more than 4 KiB, by rank, when all bring one; else the error of
// the first rank that brings an error, the same on every rank. All ranks call it together.
absl::StatusOr<std::vector<std::string>> Vote(RankMesh& mesh,
                                              const absl::StatusOr<std::string>& mine);
// For who has nothing to say but that.
absl::Status Vote(RankMesh& mesh, const absl::Status& mine);

// The rank that brought the error which Vote has returned to all; -1 for another error.
int FailedRankOf(const absl::Status& error);

}  // namespace sherd
