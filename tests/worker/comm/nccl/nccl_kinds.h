#pragma once

#include <vector>

#include "tests/worker/comm/communicator_kinds.h"

namespace sherd {

// NcclCommunicator over ScriptedNccl: with the reductions of the tree and with NCCL's own, some of
// whose launches are in progress for a while.
std::vector<CommunicatorKind> NcclCommunicatorKinds();

}  // namespace sherd
