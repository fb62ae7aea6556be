// Training on a device with memory of its own whose ops are the processor's: the seam (ADR 12)
// changes no bit of anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "tests/worker/train/separate_devices.h"
#include "worker/checkpoint/save.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;

class DeviceSeam : public DeviceJobs {
 protected:
  // The same on both, at one world.
  void ExpectTheProcessorsBits(const v1::JobSpec& spec, int world, const std::string& what) const {
    const v1::InvalidFields wrong = ValidateJobSpec(spec);
    ASSERT_EQ(wrong.fields_size(), 0) << wrong.DebugString();
    ExpectSameBits(TrainOnDevices(spec, world), TrainOnHost(spec, world), what);
  }
};

// F1, F7: one round of micro-batches and several, with and without copies of state.
TEST_F(DeviceSeam, ChangesNoBitUnderAnyStrategy) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int world : {1, 2, 4}) {
      for (const absl::string_view strategy : StrategiesOf(world)) {
        for (const int64_t rounds : {1, 2}) {
          v1::JobSpec spec = Job(strategy, type, rounds * world);
          spec.mutable_elastic()->set_replicas(rounds == 2 ? 1 : 0);
          ExpectTheProcessorsBits(spec, world,
                                  absl::StrCat(strategy, " × ", world, ", rounds ", rounds, ", ",
                                               std::string(NameOf(type))));
        }
      }
    }
  }
}

// F16: on the device, which the cases above see, and on the host beside it.
TEST_F(DeviceSeam, HoldsOnTheHostWhatIsPredicted) {
  const auto expect_predicted = [](const v1::JobSpec& spec, int world) {
    ExpectExactLedgersOnDevices(Devices(world).Run(spec), spec.parallel().ShortDebugString());
  };
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int world : {1, 3, 4}) {
      for (const absl::string_view strategy : StrategiesOf(world)) {
        for (const int64_t rounds : {1, 3}) {
          v1::JobSpec spec = Job(strategy, type, rounds * world, 2);
          spec.mutable_elastic()->set_replicas(rounds == 3 ? 1 : 0);
          expect_predicted(spec, world);
        }
      }
    }
  }
  for (const bool sequence : {false, true}) {
    v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 2, 2);
    spec.mutable_parallel()->set_tensor(2);
    spec.mutable_parallel()->set_sequence_parallel(sequence);
    expect_predicted(spec, 4);
  }
}

// F10, F35
TEST_F(DeviceSeam, ChangesNoBitOfUnevenWorkAndOverTcp) {
  for (const absl::string_view strategy : {"zero2", "zero3 kept"}) {
    ExpectTheProcessorsBits(Job(strategy, v1::DATA_TYPE_BF16, 5), 3, std::string(strategy));
  }
  const v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_BF16, 3);
  ExpectSameBits(TrainOnDevices(spec, 2, {v1::GROUP_KIND_SHARD, v1::GROUP_KIND_DATA}),
                 TrainOnHost(spec, 2), "over TCP");
}

TEST_F(DeviceSeam, ChangesNoBitUnderTensorAndSequenceParallelism) {
  for (const bool llama : {false, true}) {
    for (const bool sequence : {false, true}) {
      v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 2);
      if (llama) MakeLlama(spec);
      spec.mutable_parallel()->set_tensor(2);
      spec.mutable_parallel()->set_sequence_parallel(sequence);
      ExpectTheProcessorsBits(spec, 4,
                              absl::StrCat(llama ? "llama" : "gpt2", sequence ? " sequence" : ""));
    }
  }
}

TEST_F(DeviceSeam, ChangesNoBitWithFrozenParametersAndAnotherObjective) {
  for (const int64_t replicas : {0, 1}) {
    for (const absl::string_view strategy : {"ddp", "zero3"}) {
      v1::JobSpec spec = Job(strategy, v1::DATA_TYPE_BF16, 4);
      spec.mutable_elastic()->set_replicas(replicas);
      spec.mutable_train()->add_freeze("h.0.*");
      spec.mutable_train()->add_freeze("*.attn.c_proj.weight");
      spec.mutable_train()->set_z_loss(1e-3);
      spec.mutable_train()->set_label_smoothing(0.1);
      ExpectTheProcessorsBits(spec, 2, absl::StrCat(strategy, " replicas ", replicas));
    }
  }
}

// F41, F49: what a device saved the processor goes on from, and the other way round.
TEST_F(DeviceSeam, CheckpointsGoFromAndToTheProcessor) {
  for (const int64_t replicas : {0, 1}) {
    for (const bool saved_by_devices : {true, false}) {
      const std::string what =
          absl::StrCat("replicas ", replicas, saved_by_devices ? " from" : " to");
      const std::string saved =
          scratch_ / absl::StrCat("saved", replicas, saved_by_devices ? 1 : 0);
      v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_BF16, 2, 4);
      spec.mutable_elastic()->set_replicas(replicas);
      spec.mutable_checkpoint()->set_dir(saved);
      spec.mutable_checkpoint()->set_every(2);
      const RunOutcome whole = saved_by_devices ? TrainOnDevices(spec, 2) : TrainOnHost(spec, 2);
      // Saved by two, read by one.
      spec.mutable_checkpoint()->set_dir(scratch_ / absl::StrCat("resumed", what));
      spec.mutable_checkpoint()->set_resume(StepDirectory(saved, 2, 1));
      const RunOutcome resumed = saved_by_devices ? TrainOnHost(spec, 1) : TrainOnDevices(spec, 1);
      ASSERT_EQ(resumed.curve.size(), 2u * 2 + 1) << what;
      EXPECT_EQ(resumed.curve.back(), whole.curve.back()) << what;
      EXPECT_TRUE(resumed.weights == whole.weights) << what;
    }
  }
}

// F22: with the cause on its own rank.
TEST_F(DeviceSeam, ADeviceThatFailsEndsTheJobOnAllRanks) {
  Devices devices(2);
  LocalEpoch epoch;
  epoch.accelerators = devices.accelerators();
  LocalWorld world(Job("zero3", v1::DATA_TYPE_FP32, 2, 100000), 2, std::move(epoch));
  world.Start();
  world.WaitForStep(0, 2);
  devices.at(1).Fail(absl::InternalError("separate:0: it fell off the bus"));
  const std::vector<RankRecord> ranks = world.Join();
  EXPECT_TRUE(absl::IsInternal(ranks[1].result.status)) << ranks[1].result.status;
  EXPECT_THAT(std::string(ranks[1].result.status.message()), HasSubstr("it fell off the bus"));
  EXPECT_FALSE(ranks[0].result.status.ok());
}

}  // namespace
}  // namespace sherd::testing
