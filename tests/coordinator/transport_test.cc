// What a group's members exchange data through.

#include "coordinator/core/transport.h"

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kNccl = 22809;

TransportClaim Claim(absl::string_view domain, bool on_network, int32_t nccl_version = 0) {
  return {.memory_domain = domain, .on_network = on_network, .nccl_version = nccl_version};
}

TEST(ChooseTransport, TakesMemoryWhereAllCanMapItElseTcp) {
  const std::vector<TransportClaim> host = {Claim("a", false), Claim("a", false)};
  EXPECT_EQ(ChooseTransport(host), GroupTransport::kSharedMemory);
  const std::vector<TransportClaim> hosts = {Claim("a", true), Claim("b", true)};
  EXPECT_EQ(ChooseTransport(hosts), GroupTransport::kTcp);
  // Who names no domain shares memory with itself alone.
  const std::vector<TransportClaim> nameless = {Claim("", true), Claim("", true)};
  EXPECT_EQ(ChooseTransport(nameless), GroupTransport::kTcp);
  EXPECT_EQ(ChooseTransport({Claim("", false)}), GroupTransport::kSharedMemory);
}

TEST(ChooseTransport, TakesNcclWhereAllHaveTheSame) {
  const std::vector<TransportClaim> host = {Claim("a", false, kNccl), Claim("a", false, kNccl)};
  EXPECT_EQ(ChooseTransport(host), GroupTransport::kNccl);
  EXPECT_EQ(ChooseTransport({Claim("", false, kNccl)}), GroupTransport::kNccl);
  const std::vector<TransportClaim> hosts = {Claim("a", true, kNccl), Claim("b", true, kNccl)};
  EXPECT_EQ(ChooseTransport(hosts), GroupTransport::kNccl);
  const std::vector<TransportClaim> older = {Claim("a", false, kNccl),
                                             Claim("a", false, kNccl - 1)};
  EXPECT_EQ(ChooseTransport(older), GroupTransport::kSharedMemory);
  const std::vector<TransportClaim> without = {Claim("a", true, kNccl), Claim("b", true)};
  EXPECT_EQ(ChooseTransport(without), GroupTransport::kTcp);
}

// Its members tell each other over TCP.
TEST(ChooseTransport, TakesNoNcclWhereMembersCannotComeToEachOther) {
  const std::vector<TransportClaim> hosts = {Claim("a", true, kNccl), Claim("b", false, kNccl)};
  EXPECT_EQ(ChooseTransport(hosts), GroupTransport::kTcp);
  const std::vector<TransportClaim> nameless = {Claim("", false, kNccl), Claim("", false, kNccl)};
  EXPECT_EQ(ChooseTransport(nameless), GroupTransport::kTcp);
}

v1::Gpu Gpu(const std::string& id, int32_t nccl_version) {
  v1::Gpu gpu;
  gpu.set_id(id);
  gpu.set_nccl_version(nccl_version);
  return gpu;
}

TEST(NcclVersions, AreThoseOfRanksWithAGpuOfTheirOwn) {
  const std::vector<v1::Gpu> gpus = {Gpu("GPU-a", kNccl), Gpu("GPU-b", kNccl), Gpu("GPU-b", kNccl),
                                     Gpu("GPU-c", 0),     Gpu("", kNccl),      Gpu("GPU-d", 22304)};
  std::vector<const v1::Gpu*> ranks;
  for (const v1::Gpu& gpu : gpus) ranks.push_back(&gpu);
  EXPECT_THAT(NcclVersions(ranks), ElementsAre(kNccl, 0, 0, 0, 0, 22304));
}

}  // namespace
}  // namespace sherd
