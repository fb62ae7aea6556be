#pragma once

#include "absl/status/status.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// Whether an assignment can be planned: its rank is one of its world, the world is one that its
// specification can be laid out over, and the version that it restores is of such a world too.
// kInvalidArgument with one sentence that says what is wrong. What only whoever carries it out can
// tell, as whether its groups make up its world, is not looked at.
absl::Status CheckAssignment(const v1::Assignment& assignment);

}  // namespace sherd
