// The life of a group over NCCL that one device can show: alone, and with a peer that never comes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cuda/tested_nccl.h"
#include "tests/support/process_counts.h"
#include "worker/comm/data_link.h"
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/comm/nccl/nccl_epoch.h"

namespace sherd {
namespace {

constexpr int kElements = 1000;
constexpr int64_t kBytes = kElements * sizeof(float);

class NcclLifeCycle : public ::testing::Test {
 protected:
  NcclEpoch::Options EpochOptions() {
    return {.exit_hard = [this](absl::string_view why) { exit_ = std::string(why); }};
  }
  std::unique_ptr<NcclEpoch> NewEpoch() {
    return std::make_unique<NcclEpoch>(*tested_.nccl, *tested_.device->streams(), EpochOptions());
  }
  // Of the device's memory; what was enqueued there before is done then.
  std::vector<float> Read(const void* data) {
    std::vector<float> values(kElements);
    tested_.device->CopyOut(values.data(), data, kBytes);
    return values;
  }

  // One for all tests: a process opens NCCL and a device once.
  static TestedNccl& tested() {
    static auto* const opened = new TestedNccl(OpenTestedNccl());
    return *opened;
  }
  TestedNccl& tested_ = tested();
  std::string exit_;  // what exit_hard was told
};

NcclEpoch::Patience NoEnd() {
  return [](absl::Duration) { return absl::OkStatus(); };
}

Deadline Long() { return Deadline(absl::Seconds(60)); }

TEST_F(NcclLifeCycle, AMemberAloneFormsAGroupMovesDataAndLeaves) {
  std::vector<float> values(kElements);
  for (int i = 0; i < kElements; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i) - 500;
  for (const bool reproducible : {true, false}) {
    const std::unique_ptr<NcclEpoch> epoch = NewEpoch();
    const std::unique_ptr<DataListener> listener = *DataListener::Bind();
    const GroupSpec group{.job_id = "job",
                          .epoch = 1,
                          .group = "alone",
                          .secret = "s3cret",
                          .rank = 0,
                          .addresses = {listener->network_address()}};
    absl::StatusOr<std::unique_ptr<Communicator>> formed = FormNcclCommunicator(
        *epoch, *listener, group, {.arena_bytes = 4 * kBytes, .form_timeout = absl::Seconds(60)},
        {.reproducible = reproducible}, nullptr);
    ASSERT_TRUE(formed.ok()) << formed.status();
    Communicator& comm = **formed;
    std::byte* const arena = comm.arena();
    EXPECT_EQ(Read(arena), std::vector<float>(kElements));
    tested_.device->CopyIn(arena, values.data(), kBytes);
    EXPECT_TRUE(comm.Wait(comm.AllGather(arena, arena + kBytes, kBytes)).ok());
    EXPECT_EQ(Read(arena + kBytes), values);
    EXPECT_TRUE(comm.Wait(comm.AllReduce(arena, kElements, DType::kF32, 1)).ok());
    EXPECT_TRUE(comm.Wait(comm.Broadcast(arena, kBytes, 0)).ok());
    EXPECT_TRUE(comm.Wait(comm.ReduceScatterInPlace(arena, {kElements}, DType::kF32, 1)).ok());
    EXPECT_EQ(Read(arena), values);

    MemoryMeter meter(tested_.device->memory());
    TreeAccumulator tree(meter, Pool::kGrads, kElements, DType::kF32, 2, 1,
                         TreeAccumulator::Side::kDevice);
    for (int leaf = 0; leaf < 2; ++leaf) {
      EXPECT_TRUE(comm.Wait(comm.ReduceScatter(arena, 1, &tree)).ok());
    }
    std::vector<float> twice(values);
    for (float& value : twice) value += value;
    EXPECT_EQ(Read(tree.Finish(tested_.device->streams()->compute())), twice);

    int64_t record = 7, records = 0;
    EXPECT_TRUE(comm.Wait(comm.Exchange(&record, &records, sizeof(record))).ok());
    EXPECT_EQ(records, 7);
    EXPECT_TRUE(comm.Wait(comm.Barrier()).ok());
    // A device's clock stands between two events; they are in order.
    for (const WireCount& count : comm.counts()) EXPECT_GE(count.seconds, 0);
    formed->reset();
    EXPECT_TRUE(epoch->status().ok()) << epoch->status();
    EXPECT_TRUE(tested_.device->status().ok()) << tested_.device->status();
  }
  EXPECT_EQ(exit_, "");
}

// F33
TEST_F(NcclLifeCycle, WithAnAbsentPeerInitEndsAtItsDeadlineAndTheAbortWithin500Ms) {
  using Clock = std::chrono::steady_clock;
  constexpr absl::Duration kDeadline = absl::Seconds(1);
  const std::unique_ptr<NcclEpoch> epoch = NewEpoch();
  const absl::StatusOr<NcclUniqueId> id = epoch->NewUniqueId(Long());
  ASSERT_TRUE(id.ok()) << id.status();
  const Clock::time_point start = Clock::now();
  const absl::Status joined = epoch->Join(*id, 2, 0, "pair", Deadline(kDeadline), NoEnd()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(joined)) << joined;
  epoch->Abort(joined);
  epoch->AwaitAborted();
  const absl::Duration taken = absl::FromChrono(Clock::now() - start);
  EXPECT_GE(taken, kDeadline);
  EXPECT_LT(taken, kDeadline + absl::Milliseconds(500));
  EXPECT_EQ(exit_, "");
}

// F36
TEST_F(NcclLifeCycle, TwoHundredInitsAndAbortsLeaveNothingBehind) {
  const auto cycle = [this] {
    const std::unique_ptr<NcclEpoch> epoch = NewEpoch();
    const absl::StatusOr<NcclUniqueId> id = epoch->NewUniqueId(Long());
    ASSERT_TRUE(id.ok()) << id.status();
    const absl::Status joined = epoch->Join(*id, 1, 0, "alone", Long(), NoEnd()).status();
    ASSERT_TRUE(joined.ok()) << joined;
    epoch->Abort(absl::AbortedError("again"));
    epoch->AwaitAborted();
  };
  for (int warm_up = 0; warm_up < 10; ++warm_up) cycle();
  const int64_t threads = testing::CountThreads();
  const int64_t descriptors = testing::CountDescriptors();
  const int64_t resident = testing::ResidentBytes();
  const int64_t free = tested_.device->free_bytes();
  for (int round = 0; round < 200 && !HasFatalFailure(); ++round) cycle();
  // A thread that has been joined may still be listed.
  EXPECT_LE(testing::CountThreads(), threads + 3);
  EXPECT_LE(testing::CountDescriptors(), descriptors);
  EXPECT_LT(testing::ResidentBytes() - resident, 32 << 20);
  EXPECT_GE(tested_.device->free_bytes(), free);
  EXPECT_EQ(exit_, "");
}

}  // namespace
}  // namespace sherd
