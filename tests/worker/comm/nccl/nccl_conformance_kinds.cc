#include "nccl_kinds.h"

namespace sherd {

std::vector<CommunicatorKind> ConformanceKinds() { return NcclCommunicatorKinds(); }

}  // namespace sherd
