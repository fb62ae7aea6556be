// parallel.offload: optimizer on a device with memory of its own (ADR 15): the state's home is the
// host, a few chunks of it are on the device at a time, and no bit of anything changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/element_bytes.h"
#include "plan/job_spec.h"
#include "plan/offload.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "tests/worker/train/separate_devices.h"
#include "worker/checkpoint/save.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;

class DeviceOffload : public DeviceJobs {
 protected:
  static v1::JobSpec Offloaded(v1::JobSpec spec) {
    spec.mutable_parallel()->set_offload(v1::OFFLOAD_OPTIMIZER);
    return spec;
  }
  // The same as the processor that keeps its state; and what is held is what was predicted.
  static void ExpectTheProcessorsBits(const v1::JobSpec& spec, int world, const std::string& what) {
    const v1::InvalidFields wrong = ValidateJobSpec(Offloaded(spec));
    ASSERT_EQ(wrong.fields_size(), 0) << wrong.DebugString();
    Devices devices(world);
    const std::vector<RankRecord> ranks = devices.Run(Offloaded(spec));
    ExpectExactLedgersOnDevices(ranks, what);
    ExpectSameBits(OutcomeOf(ranks), TrainOnHost(spec, world), what);
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(devices.at(rank).most_used_bytes(), devices.at(rank).reserved_bytes()) << what;
      EXPECT_EQ(devices.at(rank).locked_bytes(), 0) << what;
    }
  }
};

// F1, F7, F16: with and without copies of state, over worlds that do not divide the work.
TEST_F(DeviceOffload, ChangesNoBitUnderAnyStrategyAndIsPredictedToTheByte) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int world : {1, 2, 3}) {
      for (const absl::string_view strategy : StrategiesOf(world)) {
        for (const int64_t replicas : {0, 1}) {
          v1::JobSpec spec = Job(strategy, type, 2 * world - 1);
          spec.mutable_elastic()->set_replicas(replicas);
          ExpectTheProcessorsBits(spec, world,
                                  absl::StrCat(strategy, " × ", world, ", replicas ", replicas,
                                               ", ", std::string(NameOf(type))));
        }
      }
    }
  }
}

TEST_F(DeviceOffload, ChangesNoBitUnderTensorAndSequenceParallelism) {
  for (const bool llama : {false, true}) {
    for (const bool sequence : {false, true}) {
      v1::JobSpec spec = Job("zero3", llama ? v1::DATA_TYPE_BF16 : v1::DATA_TYPE_FP32, 2);
      if (llama) MakeLlama(spec);
      spec.mutable_parallel()->set_tensor(2);
      spec.mutable_parallel()->set_sequence_parallel(sequence);
      ExpectTheProcessorsBits(spec, 4,
                              absl::StrCat(llama ? "llama" : "gpt2", sequence ? " sequence" : ""));
    }
  }
  v1::JobSpec spec = Job("hybrid 2", v1::DATA_TYPE_BF16, 5);
  spec.mutable_elastic()->set_replicas(1);
  ExpectTheProcessorsBits(spec, 4, "hybrid");
}

// What is frozen passes through beside what is trained, or stays at home.
TEST_F(DeviceOffload, ChangesNoBitWithFrozenParameters) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int64_t replicas : {0, 1}) {
      for (const absl::string_view strategy : {"ddp", "zero3"}) {
        v1::JobSpec spec = Job(strategy, type, 4);
        spec.mutable_elastic()->set_replicas(replicas);
        spec.mutable_train()->add_freeze("h.0.*");
        spec.mutable_train()->add_freeze("*.attn.c_proj.weight");
        spec.mutable_train()->add_freeze("*.ln_1.*");
        ExpectTheProcessorsBits(spec, 2, absl::StrCat(strategy, " replicas ", replicas));
      }
    }
  }
}

// Units of several chunks, the last of them shorter: more than the ring holds.
TEST_F(DeviceOffload, ChangesNoBitOfUnitsThatAreLargerThanTheRing) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    v1::JobSpec spec = Job("zero1", type, 1, 2);
    spec.mutable_data()->clear_eval();
    spec.mutable_model()->set_vocab(4 * kOffloadChunkElements / spec.model().hidden() + 77);
    spec.mutable_elastic()->set_replicas(type == v1::DATA_TYPE_BF16 ? 1 : 0);
    ASSERT_GT(VersionBytes(BuildRankPlan(spec, 0, 1)),
              kOffloadSlots * kOffloadChunkElements * kVersionElementBytes);
    ExpectTheProcessorsBits(spec, 1, std::string(NameOf(type)));
  }
}

// A step brings what it updates once, and sends it home once.
TEST_F(DeviceOffload, StateTravelsOnceAStepInEachDirection) {
  constexpr int64_t kSteps = 4;
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int64_t replicas : {0, 1}) {
      v1::JobSpec spec = Offloaded(Job("zero3", type, 2, kSteps));
      spec.mutable_elastic()->set_replicas(replicas);
      Devices devices(2);
      OutcomeOf(devices.Run(spec));
      const RankPlan plan = BuildRankPlan(spec, 1, 2);
      int64_t trained = 0;
      for (int unit = 0; unit < static_cast<int>(plan.layout.units.size()); ++unit) {
        const UnitLayout& layout = plan.layout.units[static_cast<size_t>(unit)];
        trained += layout.Filled(plan.ShardIndex()).size();
      }
      const bool fp32 = type == v1::DATA_TYPE_FP32;
      const int64_t state = trained * (fp32 ? 2 : 3) * kFp32Bytes;
      // Versions of fp32 parameters hold these too.
      const int64_t masters = fp32 && replicas > 0 ? trained * kFp32Bytes : 0;
      EXPECT_EQ(devices.at(1).lane_bytes(Lane::kOut), kSteps * (state + masters));
      const int64_t at_the_ends = devices.at(1).lane_bytes(Lane::kIn) - kSteps * state;
      // Parameters of less than fp32 are made of the masters, which are looked at before they are
      // written.
      EXPECT_EQ(at_the_ends, fp32 ? 0 : 2 * VersionBytes(plan) / 3);
    }
  }
}

// F41, F49: what is saved is the same, wherever the state was.
TEST_F(DeviceOffload, CheckpointsGoFromAndToTheProcessor) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int64_t replicas : {0, 1}) {
      for (const bool saved_by_devices : {true, false}) {
        const std::string what = absl::StrCat(std::string(NameOf(type)), " replicas ", replicas,
                                              saved_by_devices ? " from" : " to");
        v1::JobSpec spec = Offloaded(Job("zero3", type, 2, 4));
        spec.mutable_elastic()->set_replicas(replicas);
        spec.mutable_checkpoint()->set_dir(scratch_ / absl::StrCat("saved ", what));
        spec.mutable_checkpoint()->set_every(2);
        const RunOutcome whole = saved_by_devices ? TrainOnDevices(spec, 2) : TrainOnHost(spec, 2);
        // Saved by two, read by one.
        const std::string saved = StepDirectory(spec.checkpoint().dir(), 2, 1);
        spec.mutable_checkpoint()->set_dir(scratch_ / absl::StrCat("resumed ", what));
        spec.mutable_checkpoint()->set_resume(saved);
        const RunOutcome resumed =
            saved_by_devices ? TrainOnHost(spec, 1) : TrainOnDevices(spec, 1);
        ASSERT_EQ(resumed.curve.size(), 2u * 2 + 1) << what;
        EXPECT_EQ(resumed.curve.back(), whole.curve.back()) << what;
        EXPECT_TRUE(resumed.weights == whole.weights) << what;
      }
    }
  }
}

// F20: a job fits for which there is room but for its state.
TEST_F(DeviceOffload, AJobWhoseStateDoesNotFitTrainsWithItsStateOnTheHost) {
  v1::JobSpec spec = Job("ddp", v1::DATA_TYPE_BF16, 1);
  spec.mutable_model()->set_layers(16);
  Devices reference(1);
  OutcomeOf(reference.Run(Offloaded(spec)));
  // Kernels' own is not reserved, but has to be had.
  const int64_t room = reference.at(0).reserved_bytes() + (1 << 20);
  const absl::Status refused = Devices(1, room).Run(spec)[0].result.status;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("parallel.offload: optimizer"));
  ExpectSameBits(OutcomeOf(Devices(1, room).Run(Offloaded(spec))), TrainOnHost(spec, 1), "tight");
}

// F22, F34
TEST_F(DeviceOffload, WithoutLockedMemoryTheJobEndsOnAllRanksWithTheCause) {
  for (const int64_t replicas : {0, 1}) {
    v1::JobSpec spec = Offloaded(Job("zero3", v1::DATA_TYPE_FP32, 2, 1000));
    spec.mutable_elastic()->set_replicas(replicas);
    Devices devices(2);
    devices.at(1).RefuseLocked();
    const std::vector<RankRecord> ranks = devices.Run(spec);
    const absl::Status& cause = ranks[1].result.status;
    EXPECT_TRUE(absl::IsResourceExhausted(cause)) << cause;
    EXPECT_THAT(std::string(cause.message()),
                HasSubstr(replicas == 0 ? "locked bytes for optimizer cannot be had"
                                        : "bytes of the host cannot be locked"));
    EXPECT_FALSE(ranks[1].ready);
    EXPECT_FALSE(ranks[0].result.status.ok());
  }
}

// F22: a device that fails while state travels.
TEST_F(DeviceOffload, ADeviceThatFailsEndsTheJobOnAllRanks) {
  Devices devices(2);
  LocalEpoch epoch;
  epoch.accelerators = devices.accelerators();
  LocalWorld world(Offloaded(Job("zero3", v1::DATA_TYPE_FP32, 2, 100000)), 2, std::move(epoch));
  world.Start();
  world.WaitForStep(0, 2);
  devices.at(1).Fail(absl::InternalError("separate:0: it fell off the bus"));
  const std::vector<RankRecord> ranks = world.Join();
  EXPECT_THAT(std::string(ranks[1].result.status.message()), HasSubstr("it fell off the bus"));
  EXPECT_FALSE(ranks[0].result.status.ok());
}

}  // namespace
}  // namespace sherd::testing
