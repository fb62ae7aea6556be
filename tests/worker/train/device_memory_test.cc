#include "worker/train/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/device_ledger.h"
#include "tests/support/jobs.h"
#include "tests/support/separate_device.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "worker/train/host_memory.h"

namespace sherd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

v1::RankLedger Predicted() {
  v1::RankLedger ledger;
  (*ledger.mutable_memory())["params"].set_predicted(3 * kMiB);
  (*ledger.mutable_memory())["optimizer"].set_predicted(9 * kMiB);
  (*ledger.mutable_memory())["grads"].set_predicted(2 * kMiB);
  (*ledger.mutable_memory())["activations"].set_predicted(5 * kMiB);
  (*ledger.mutable_memory())["peak"].set_predicted(19 * kMiB);
  (*ledger.mutable_host_memory())["replicas"].set_predicted(1000 * kMiB);
  return ledger;
}

TEST(DeviceMemory, WhatTheDeviceWillHoldIsReservedInOnePiece) {
  SeparateDevice device(19 * kMiB);
  EXPECT_TRUE(PlanDeviceMemory(Predicted(), device).ok());
  EXPECT_EQ(device.reserved_bytes(), 19 * kMiB);
}

TEST(DeviceMemory, WhatNcclTakesByItselfFitsAndIsNotReserved) {
  SeparateDevice device(19 * kMiB);
  EXPECT_TRUE(PlanDeviceMemory(Predicted(), device, /*of_nccl=*/4 * kMiB).ok());
  EXPECT_EQ(device.reserved_bytes(), 15 * kMiB);
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

// F20: state's home, or its copies, may be too much for the host.
TEST(DeviceMemory, WhatTheHostCannotHoldBesideTheDeviceIsRefused) {
  const v1::JobSpec spec = MakeJob("zero3", v1::DATA_TYPE_BF16, 4, {});
  const RankPlan plan = BuildRankPlan(spec, 0, 2);
  v1::RankLedger ledger = PredictLedger(plan, spec);
  const auto check = [&] {
    return CheckHostMemory(OnDevice(plan, spec, ledger, std::nullopt).host_memory(), 0, 1);
  };
  EXPECT_TRUE(check().ok());
  (*ledger.mutable_memory())["replicas"].set_predicted(int64_t{1} << 50);
  const absl::Status refused = check();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("(largest: replicas 1048576"), HasSubstr("share this host")));
}

TEST(DeviceMemory, AJobThatTheHostCannotHoldIsRefusedBeforeItsGroupsForm) {
  TemporaryDirectory scratch;
  v1::JobSpec spec =
      TinyJob(scratch.Write("train.txt", MakeText(3000, 3)), "zero3", v1::DATA_TYPE_FP32, 1, 1);
  // Terabytes.
  spec.mutable_model()->set_hidden(1 << 16);
  SeparateDevice device(int64_t{1} << 60);
  LocalEpoch epoch;
  epoch.accelerators = {&device};
  const absl::Status status = LocalWorld(spec, 1, std::move(epoch)).Run()[0].result.status;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("share this host"));
}

// F22, F34: what a device turns out not to have ends the job on all ranks, with the cause.
TEST(DeviceMemory, WhatADeviceDoesNotHaveAfterAllEndsTheJobOnAllRanks) {
  TemporaryDirectory scratch;
  const v1::JobSpec spec =
      TinyJob(scratch.Write("train.txt", MakeText(3000, 3)), "zero3", v1::DATA_TYPE_FP32, 2, 1000);
  // In the middle of the formation, and when groups have formed.
  for (const Pool pool : {Pool::kComm, Pool::kActivations}) {
    SeparateDevice devices[2];
    devices[1].Refuse(pool);
    LocalEpoch epoch;
    epoch.accelerators = {&devices[0], &devices[1]};
    const std::vector<RankRecord> ranks = LocalWorld(spec, 2, std::move(epoch)).Run();
    const absl::Status& cause = ranks[1].result.status;
    EXPECT_TRUE(absl::IsResourceExhausted(cause)) << cause;
    EXPECT_THAT(
        std::string(cause.message()),
        AllOf(HasSubstr(absl::StrCat("bytes for ", NameOf(pool))), HasSubstr("cannot be had")));
    EXPECT_FALSE(ranks[1].ready);
    EXPECT_EQ(ranks[1].result.lost_peer, -1);
    EXPECT_THAT(std::string(ranks[0].result.status.message()),
                HasSubstr(std::string(cause.message())));
    EXPECT_EQ(ranks[0].result.lost_peer, 1);
  }
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
