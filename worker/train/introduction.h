#pragma once

#include <string>

#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// What a rank that is about to train says of the job in its log: one line.
std::string Introduction(const v1::Assignment& assignment, const RankPlan& plan,
                         const RankMesh& mesh, int threads);

}  // namespace sherd
