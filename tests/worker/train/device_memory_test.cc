#include "worker/train/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/jobs.h"
#include "tests/support/separate_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

v1::RankLedger Predicted() {
  v1::RankLedger ledger;
  (*ledger.mutable_memory())["params"].set_predicted(3 * kMiB);
  (*ledger.mutable_memory())["optimizer"].set_predicted(9 * kMiB);
  (*ledger.mutable_memory())["grads"].set_predicted(2 * kMiB);
  (*ledger.mutable_memory())["activations"].set_predicted(5 * kMiB);
  // Of the host, or sums.
  for (const char* const pool : {"replicas", "scratch", "comm", "peak"}) {
    (*ledger.mutable_memory())[pool].set_predicted(1000 * kMiB);
  }
  return ledger;
}

TEST(DeviceMemory, WhatTheDeviceWillHoldIsReservedInOnePiece) {
  SeparateDevice device(19 * kMiB);
  EXPECT_TRUE(PlanDeviceMemory(Predicted(), device).ok());
  EXPECT_EQ(device.reserved_bytes(), 19 * kMiB);
}

// F20
TEST(DeviceMemory, WhatCannotFitIsRefusedWithTheLargestPools) {
  SeparateDevice device(19 * kMiB - 1);
  const absl::Status refused = PlanDeviceMemory(Predicted(), device);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("a rank of this job takes 19.0 MiB (largest: optimizer 9.0 MiB, "
                        "activations 5.0 MiB, params 3.0 MiB) and separate:0 has 19.0 MiB"));
  EXPECT_EQ(device.reserved_bytes(), 0);
}

TEST(DeviceMemory, AJobThatCannotFitIsRefusedBeforeItsGroupsForm) {
  TemporaryDirectory scratch;
  const v1::JobSpec spec =
      TinyJob(scratch.Write("train.txt", MakeText(3000, 3)), "zero3", v1::DATA_TYPE_FP32, 1, 1);
  SeparateDevice device(16 << 10);
  LocalEpoch epoch;
  epoch.accelerators = {&device};
  const absl::Status status = LocalWorld(spec, 1, std::move(epoch)).Run()[0].result.status;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a rank of this job takes"));
}

}  // namespace
}  // namespace sherd::testing
