#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"

namespace sherd::testing {
namespace {

// On a CPU the optimizer state lives in the same memory either way, and the ledger says where the
// job asked for it.
TEST(Offload, ChangesNoBitAndNoByteOnACpu) {
  const TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", MakeText(3000, 1));
  v1::JobSpec spec = TinyJob(text, "zero2", v1::DATA_TYPE_BF16, 4, 3);
  const std::vector<RankRecord> kept = LocalWorld(spec, 2).Run();
  spec.mutable_parallel()->set_offload(v1::OFFLOAD_OPTIMIZER);
  const std::vector<RankRecord> offloaded = LocalWorld(spec, 2).Run();
  for (size_t rank = 0; rank < kept.size(); ++rank) {
    ASSERT_TRUE(kept[rank].result.status.ok()) << kept[rank].result.status;
    ASSERT_TRUE(offloaded[rank].result.status.ok()) << offloaded[rank].result.status;
    ASSERT_FALSE(offloaded[rank].ledgers.empty());
    const v1::RankLedger& before = kept[rank].ledgers.back();
    const v1::RankLedger& after = offloaded[rank].ledgers.back();
    EXPECT_EQ(before.offload(), v1::OFFLOAD_NONE);
    EXPECT_EQ(after.offload(), v1::OFFLOAD_OPTIMIZER);
    for (const char* pool : {"optimizer", "peak"}) {
      EXPECT_EQ(after.memory().at(pool).measured(), before.memory().at(pool).measured()) << pool;
    }
  }
  ASSERT_EQ(offloaded[0].steps.size(), 3u);
  for (size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(std::bit_cast<uint64_t>(offloaded[0].steps[step].loss()),
              std::bit_cast<uint64_t>(kept[0].steps[step].loss()));
    EXPECT_EQ(std::bit_cast<uint64_t>(offloaded[0].steps[step].grad_norm()),
              std::bit_cast<uint64_t>(kept[0].steps[step].grad_norm()));
  }
}

}  // namespace
}  // namespace sherd::testing
