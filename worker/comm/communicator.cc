#include "worker/comm/communicator.h"

namespace sherd {

absl::string_view NameOf(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kExchange:
      return "exchange";
  }
  return "unknown";
}

}  // namespace sherd
