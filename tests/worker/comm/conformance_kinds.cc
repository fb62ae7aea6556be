#include "communicator_kinds.h"

namespace sherd {

std::vector<CommunicatorKind> ConformanceKinds() { return AllCommunicatorKinds(); }

}  // namespace sherd
