#include "coordinator/core/transport.h"

#include <algorithm>
#include <map>

namespace sherd {

std::vector<int32_t> NcclVersions(const std::vector<const v1::Gpu*>& gpus) {
  std::map<absl::string_view, int> ranks_by_gpu;
  for (const v1::Gpu* gpu : gpus) ++ranks_by_gpu[gpu->id()];
  std::vector<int32_t> versions;
  for (const v1::Gpu* gpu : gpus) {
    const bool own = !gpu->id().empty() && ranks_by_gpu.at(gpu->id()) == 1;
    versions.push_back(own ? gpu->nccl_version() : 0);
  }
  return versions;
}

GroupTransport ChooseTransport(absl::Span<const TransportClaim> members) {
  const TransportClaim& first = members.front();
  const auto all = [members](const auto& holds) {
    return std::all_of(members.begin(), members.end(), holds);
  };
  const bool one_domain = members.size() == 1 ||
                          (!first.memory_domain.empty() && all([&](const TransportClaim& member) {
                            return member.memory_domain == first.memory_domain;
                          }));
  const bool one_nccl = first.nccl_version != 0 && all([&](const TransportClaim& member) {
                          return member.nccl_version == first.nccl_version;
                        });
  const bool reach =
      one_domain || all([](const TransportClaim& member) { return member.on_network; });
  if (one_nccl && reach) return GroupTransport::kNccl;
  return one_domain ? GroupTransport::kSharedMemory : GroupTransport::kTcp;
}

}  // namespace sherd
