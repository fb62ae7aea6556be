// The whole worker through the host side of kernels/cuda with groups over NCCL: on software
// devices, and a stand-in for NCCL that moves data between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/cuda/software_device.h"
#include "tests/cuda/software_nccl.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"

namespace sherd {
namespace {

using simt::Schedule;
using simt::SoftwareDriverOptions;
using simt::SoftwareHoldings;
using testing::ExpectSameBits;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LocalEpoch;
using testing::LocalWorld;
using testing::OutcomeOf;
using testing::RankRecord;
using testing::RunOutcome;

// A device for each rank, and what connects them.
class ConnectedDevices {
 public:
  explicit ConnectedDevices(int world, const SoftwareDriverOptions& options = {})
      : holdings_(options.holdings) {
    for (int rank = 0; rank < world; ++rank) devices_.push_back(OpenSoftwareDevice(options));
  }
  // Fails the test when a rule of NCCL was broken, or something was not given back.
  ~ConnectedDevices() {
    EXPECT_THAT(nccl_.violations(), IsEmpty());
    EXPECT_EQ(nccl_.live_comms(), 0);
    EXPECT_EQ(nccl_.live_allocations(), 0);
    for (const auto& device : devices_) EXPECT_EQ(device->used_bytes(), 0);
    devices_.clear();
    EXPECT_TRUE(holdings_->empty());
  }

  ScriptedNccl& nccl() { return nccl_; }
  void Replace(size_t rank, const SoftwareDriverOptions& options) {
    devices_[rank] = OpenSoftwareDevice(options);
  }
  // Of a world of these devices: groups of all kinds are over NCCL, but for those over TCP.
  LocalEpoch Epoch(const std::set<v1::GroupKind>& over_tcp = {}) {
    LocalEpoch epoch{.over_tcp = over_tcp};
    for (const auto& device : devices_) epoch.accelerators.push_back(device.get());
    epoch.nccl = &nccl_;
    return epoch;
  }
  std::vector<RankRecord> Train(const v1::JobSpec& spec,
                                const std::set<v1::GroupKind>& over_tcp = {}) {
    return LocalWorld(spec, static_cast<int>(devices_.size()), Epoch(over_tcp)).Run();
  }

 private:
  ScriptedNccl nccl_{std::make_unique<NcclOnSoftwareDevices>()};
  const std::shared_ptr<SoftwareHoldings> holdings_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

RunOutcome TrainOverNccl(const v1::JobSpec& spec, int world,
                         const SoftwareDriverOptions& options = {},
                         const std::set<v1::GroupKind>& over_tcp = {}) {
  return OutcomeOf(ConnectedDevices(world, options).Train(spec, over_tcp));
}

RunOutcome TrainThroughTheHost(const v1::JobSpec& spec, int world) {
  std::vector<std::unique_ptr<CudaDevice>> devices;
  LocalEpoch epoch;
  for (int rank = 0; rank < world; ++rank) {
    devices.push_back(OpenSoftwareDevice());
    epoch.accelerators.push_back(devices.back().get());
  }
  return OutcomeOf(LocalWorld(spec, world, std::move(epoch)).Run());
}

class NcclTraining : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, v1::DataType type, int64_t micro_batches = 2,
                  int64_t steps = 2) const {
    v1::JobSpec spec = testing::TinyJob(text_, strategy, type, micro_batches, steps);
    spec.mutable_data()->add_eval(held_out_);
    return spec;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", testing::MakeText(3000, 3));
  const std::string held_out_ = scratch_.Write("eval.txt", testing::MakeText(100, 4));
};

// F1, F12: sums that come about on devices have the bits of those on the host, whatever strategy
// and world.
TEST_F(NcclTraining, HasTheBitsOfTheWayThroughTheHost) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    const RunOutcome reference = TrainThroughTheHost(Job("zero3", type, 4), 1);
    for (const int world : {1, 2}) {
      for (const absl::string_view strategy : testing::StrategiesOf(world)) {
        ExpectSameBits(TrainOverNccl(Job(strategy, type, 4), world), reference,
                       absl::StrCat(strategy, " world ", world, " ", std::string(NameOf(type))));
      }
    }
  }
}

TEST_F(NcclTraining, SharesOutUnevenWorkWithTheSameBits) {
  const RunOutcome reference = TrainThroughTheHost(Job("zero3", v1::DATA_TYPE_BF16, 5), 1);
  for (const absl::string_view strategy : {"zero2", "zero3 kept"}) {
    ExpectSameBits(TrainOverNccl(Job(strategy, v1::DATA_TYPE_BF16, 5), 3), reference,
                   std::string(strategy));
  }
}

// F8
TEST_F(NcclTraining, HasTheSameBitsWheneverTheDeviceComputes) {
  const v1::JobSpec spec = Job("zero2", v1::DATA_TYPE_BF16, 3);
  const RunOutcome reference = TrainThroughTheHost(spec, 2);
  for (const Schedule schedule : {Schedule::kGuarded, Schedule::kLate, Schedule::kPriority}) {
    ExpectSameBits(TrainOverNccl(spec, 2, {.schedule = schedule}), reference,
                   absl::StrCat("schedule ", static_cast<int>(schedule)));
  }
}

// Groups along several axes, whose operations are under way at the same time; and some of them
// through the host.
TEST_F(NcclTraining, EveryAxisAndSomeOfThemHaveTheSameBits) {
  v1::JobSpec tensor = Job("zero3", v1::DATA_TYPE_FP32, 2);
  testing::MakeLlama(tensor);
  tensor.mutable_parallel()->set_tensor(2);
  tensor.mutable_parallel()->set_sequence_parallel(true);
  const v1::JobSpec hybrid = Job("hybrid 2", v1::DATA_TYPE_BF16, 4);
  for (const v1::JobSpec& spec : {tensor, hybrid}) {
    const RunOutcome reference = TrainThroughTheHost(spec, 4);
    const std::string what = spec.parallel().ShortDebugString();
    ExpectSameBits(TrainOverNccl(spec, 4), reference, what);
    ExpectSameBits(TrainOverNccl(spec, 4, {}, {v1::GROUP_KIND_SHARD, v1::GROUP_KIND_DATA}),
                   reference, what + ", shards through the host");
    ExpectSameBits(TrainOverNccl(spec, 4, {}, {v1::GROUP_KIND_REPLICA, v1::GROUP_KIND_TENSOR}),
                   reference, what + ", shards over NCCL alone");
  }
}

// In an order of NCCL's choice, which differs from the tree's by rounding.
TEST_F(NcclTraining, AJobThatIsNotReproducibleTakesNcclsOwnSums) {
  for (const absl::string_view strategy : {"zero1", "zero2", "zero3"}) {
    v1::JobSpec spec = Job(strategy, v1::DATA_TYPE_FP32, 3);
    const RunOutcome reference = TrainThroughTheHost(spec, 3);
    spec.mutable_precision()->set_reproducible(false);
    const RunOutcome native = TrainOverNccl(spec, 3);
    ASSERT_EQ(native.curve.size(), reference.curve.size());
    EXPECT_NE(native.weights, reference.weights) << strategy;
    for (size_t i = 0; i < native.curve.size(); ++i) {
      EXPECT_NEAR(native.curve[i], reference.curve[i], 1e-3 * reference.curve[i]) << strategy;
    }
    // The hosts have one order alone.
    ExpectSameBits(TrainThroughTheHost(spec, 3), reference, std::string(strategy));
  }
}

// F16: what lies on the device instead of the host, and what NCCL receives in.
TEST_F(NcclTraining, TheLedgerIsExactOnBothSides) {
  for (const absl::string_view strategy : {"ddp", "zero2", "hybrid 2"}) {
    const v1::JobSpec spec = Job(strategy, v1::DATA_TYPE_BF16, 8, 2);
    for (const std::set<v1::GroupKind>& over_tcp :
         {std::set<v1::GroupKind>{}, {v1::GROUP_KIND_SHARD}, {v1::GROUP_KIND_REPLICA}}) {
      for (const RankRecord& rank : ConnectedDevices(4).Train(spec, over_tcp)) {
        ASSERT_TRUE(rank.result.status.ok()) << rank.result.status;
        const v1::RankLedger& ledger = rank.ledgers.back();
        for (const auto* memory : {&ledger.memory(), &ledger.host_memory()}) {
          for (const auto& [pool, line] : *memory) {
            EXPECT_EQ(line.measured(), line.predicted())
                << strategy << ", " << pool << (memory == &ledger.memory() ? "" : " on the host");
          }
        }
        for (const auto& [op, line] : ledger.wire()) {
          EXPECT_EQ(line.bytes().measured(), line.bytes().predicted()) << strategy << ", " << op;
        }
      }
    }
  }
}

TEST_F(NcclTraining, JobAfterJobTakesNoMoreOfTheDevice) {
  ConnectedDevices devices(2);
  for (int job = 0; job < 3; ++job) {
    OutcomeOf(devices.Train(Job("zero3", v1::DATA_TYPE_BF16, 2, 1)));
    EXPECT_EQ(devices.nccl().live_allocations(), 0);
  }
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// F22, F29
TEST_F(NcclTraining, AnAbortInTheMiddleEndsAllRanks) {
  for (const bool hangs : {false, true}) {
    ConnectedDevices devices(2);
    LocalWorld world(Job("zero3", v1::DATA_TYPE_FP32, 2, 1000), 2, devices.Epoch());
    if (hangs) {
      devices.nccl().Inject({.call = NcclCall::kKernel, .rank = 1, .skip = 40});
      world.Start();
      ASSERT_TRUE(devices.nccl().AwaitHang(absl::Seconds(60)));
    } else {
      world.Start();
      world.WaitForStep(0, 3);
    }
    const auto start = std::chrono::steady_clock::now();
    world.trainer(0).Abort("as the test says");
    const std::vector<RankRecord> ranks = world.Join();
    EXPECT_LT(SecondsSince(start), 5);
    EXPECT_TRUE(absl::IsAborted(ranks[0].result.status)) << ranks[0].result.status;
    EXPECT_THAT(std::string(ranks[1].result.status.message()), HasSubstr("as the test says"));
    EXPECT_EQ(ranks[1].result.lost_peer, 0);
  }
}

// F8: a job that ends early leaves its device work that it has enqueued and not waited for; arenas
// stay until that is done.
TEST_F(NcclTraining, ArenasOutliveWhatIsEnqueuedWhenAJobIsAborted) {
  for (int64_t step = 1; step <= 4; ++step) {
    const SoftwareDriverOptions options{.schedule = Schedule::kLate};
    ConnectedDevices devices(2, options);
    LocalWorld world(Job("zero3", v1::DATA_TYPE_FP32, 2, 1000), 2, devices.Epoch());
    world.Start();
    world.WaitForStep(0, step);
    world.trainer(0).Abort("as the test says");
    EXPECT_FALSE(world.Join()[1].result.status.ok());
    EXPECT_EQ(options.holdings->freed_at_work.load(), 0) << "aborted after step " << step;
  }
}

// A device that fails in the middle ends the job on all ranks, with the cause on its own.
TEST_F(NcclTraining, ADeviceThatFailsEndsTheJobOnAllRanks) {
  ConnectedDevices devices(2);
  devices.Replace(1, {.failing_call = "cublasLtMatmul", .failing_time = 60});
  const std::vector<RankRecord> ranks = devices.Train(Job("zero3", v1::DATA_TYPE_FP32, 2, 50));
  EXPECT_THAT(std::string(ranks[1].result.status.message()),
              HasSubstr("cuda:0: a product of matrices"));
  EXPECT_FALSE(ranks[0].result.status.ok());
  EXPECT_EQ(ranks[0].result.lost_peer, 1);
}

// F34: over several axes, whichever of them a rank hears of it on.
TEST_F(NcclTraining, ADeviceThatFailsIsBlamedAlongSeveralAxes) {
  v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 2, 50);
  testing::MakeLlama(spec);
  spec.mutable_parallel()->set_tensor(2);
  ConnectedDevices devices(4);
  devices.Replace(1, {.failing_call = "cublasLtMatmul", .failing_time = 60});
  const std::vector<RankRecord> ranks = devices.Train(spec);
  EXPECT_EQ(ranks[1].result.lost_peer, -1);
  EXPECT_THAT(std::string(ranks[1].result.status.message()),
              HasSubstr("cuda:0: a product of matrices"));
  for (const size_t rank : {0, 2, 3}) {
    EXPECT_FALSE(ranks[rank].result.status.ok());
    // Rank 2 has no group with rank 1, and the others may hear of it from each other.
    EXPECT_GE(ranks[rank].result.lost_peer, 0) << rank << ": " << ranks[rank].result.status;
    EXPECT_NE(ranks[rank].result.lost_peer, static_cast<int>(rank));
  }
}

TEST_F(NcclTraining, AnErrorOfNcclEndsTheJobOnAllRanks) {
  ConnectedDevices devices(2);
  devices.nccl().Inject({.call = NcclCall::kGroupEnd,
                         .rank = 1,
                         .what = NcclFault::kFail,
                         .result = NcclResult::kSystemError,
                         .skip = 30});
  const std::vector<RankRecord> ranks = devices.Train(Job("zero2", v1::DATA_TYPE_FP32, 2, 50));
  EXPECT_THAT(std::string(ranks[1].result.status.message()), HasSubstr("scripted error 2"));
  EXPECT_EQ(ranks[0].result.lost_peer, 1);
}

TEST_F(NcclTraining, WithoutNcclAGroupOverItIsRefused) {
  ConnectedDevices devices(1);
  LocalEpoch epoch = devices.Epoch();
  epoch.accelerators.clear();
  const std::vector<RankRecord> ranks =
      LocalWorld(Job("zero3", v1::DATA_TYPE_FP32), 1, std::move(epoch)).Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(ranks[0].result.status)) << ranks[0].result.status;
  EXPECT_THAT(std::string(ranks[0].result.status.message()), HasSubstr("no GPU or no NCCL"));
}

}  // namespace
}  // namespace sherd
