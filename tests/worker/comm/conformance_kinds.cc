#include <utility>

#include "communicator_kinds.h"

namespace sherd {

std::vector<CommunicatorKind> ConformanceKinds() {
  std::vector<CommunicatorKind> kinds = AllCommunicatorKinds();
  for (CommunicatorKind& kind : StagedCommunicatorKinds()) kinds.push_back(std::move(kind));
  return kinds;
}

}  // namespace sherd
