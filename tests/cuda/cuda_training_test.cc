// The whole worker through the host side of kernels/cuda, on the software device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/cuda/software_device.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "worker/checkpoint/save.h"
#include "worker/train/device_watch.h"

namespace sherd {
namespace {

using simt::Schedule;
using simt::SoftwareDriverOptions;
using simt::SoftwareHoldings;
using testing::ExpectSameBits;
using ::testing::HasSubstr;
using testing::LocalEpoch;
using testing::LocalWorld;
using testing::OutcomeOf;
using testing::RankRecord;
using testing::RunOutcome;

// A device for each rank.
class Devices {
 public:
  Devices(int world, const SoftwareDriverOptions& options) {
    for (int rank = 0; rank < world; ++rank) devices_.push_back(OpenSoftwareDevice(options));
  }
  std::vector<Accelerator*> accelerators() const {
    std::vector<Accelerator*> all;
    for (const auto& device : devices_) all.push_back(device.get());
    return all;
  }
  CudaDevice& at(size_t rank) const { return *devices_[rank]; }

 private:
  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

RunOutcome TrainOnHost(const v1::JobSpec& spec, int world) {
  return OutcomeOf(LocalWorld(spec, world).Run());
}

RunOutcome TrainOnDevices(const v1::JobSpec& spec, int world,
                          const SoftwareDriverOptions& options = {},
                          const std::set<v1::GroupKind>& over_tcp = {}) {
  const Devices devices(world, options);
  LocalEpoch epoch{.over_tcp = over_tcp};
  epoch.accelerators = devices.accelerators();
  return OutcomeOf(LocalWorld(spec, world, std::move(epoch)).Run());
}

class CudaTraining : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, v1::DataType type, int64_t micro_batches = 2,
                  int64_t steps = 3) const {
    v1::JobSpec spec = testing::TinyJob(text_, strategy, type, micro_batches, steps);
    spec.mutable_data()->add_eval(held_out_);
    return spec;
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", testing::MakeText(3000, 3));
  const std::string held_out_ = scratch_.Write("eval.txt", testing::MakeText(100, 4));
};

// Sums are taken in another order, in bf16 operands of products are rounded to 8 bits, and Adam's
// first steps, of the size of the learning rate whatever the gradient's, carry that into the
// weights. A norm shows it more than a mean over tokens does.
void ExpectTheProcessorsCurve(const RunOutcome& device, const RunOutcome& host, v1::DataType type) {
  const double loss = type == v1::DATA_TYPE_FP32 ? 1e-4 : 1e-2;
  ASSERT_EQ(device.curve.size(), host.curve.size());
  for (size_t i = 0; i < host.curve.size(); ++i) {
    const bool norm = i % 2 == 1;
    EXPECT_NEAR(device.curve[i], host.curve[i], (norm ? 5 : 1) * loss * host.curve[i]) << i;
  }
}

TEST_F(CudaTraining, TheCurveIsTheProcessors) {
  for (const bool llama : {false, true}) {
    for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
      v1::JobSpec spec = Job("zero3", type);
      if (llama) testing::MakeLlama(spec);
      const RunOutcome host = TrainOnHost(spec, 1);
      ASSERT_EQ(host.curve.size(), 2u * 3 + 1);
      for (const Schedule schedule : {Schedule::kGuarded, Schedule::kLate}) {
        SCOPED_TRACE(absl::StrCat(llama ? "llama " : "gpt2 ", std::string(NameOf(type)),
                                  schedule == Schedule::kLate ? " late" : " guarded"));
        const RunOutcome device = TrainOnDevices(spec, 1, {.schedule = schedule});
        ExpectTheProcessorsCurve(device, host, type);
        EXPECT_NE(device.curve, host.curve);  // it was not the processor
      }
    }
  }
}

// F1, F12: one curve and the same weights, bit for bit, whatever strategy and world.
TEST_F(CudaTraining, HasTheSameBitsOverStrategiesAndWorlds) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    const RunOutcome reference = TrainOnDevices(Job("zero3", type, 4), 1);
    for (const int world : {1, 2}) {
      for (const absl::string_view strategy : testing::StrategiesOf(world)) {
        ExpectSameBits(TrainOnDevices(Job(strategy, type, 4), world), reference,
                       absl::StrCat(strategy, " world ", world, " ", std::string(NameOf(type))));
      }
    }
  }
}

// F1: of heads and layers of odd sizes no tensor lies alike under two layouts, and yet every
// product is asked for with the same properties, so that a library cannot choose otherwise.
TEST_F(CudaTraining, StrategiesAndWorldsAskForTheSameAlgorithms) {
  struct Case {
    v1::DataType type;
    int64_t ffn;
  };
  // Of 40 channels a GELU is an epilogue.
  for (const Case& of :
       {Case{v1::DATA_TYPE_FP32, 37}, Case{v1::DATA_TYPE_BF16, 37}, Case{v1::DATA_TYPE_BF16, 40}}) {
    std::set<ProductKey> reference;
    for (const int world : {1, 2, 3}) {
      for (const absl::string_view strategy : testing::StrategiesOf(world)) {
        v1::JobSpec spec = Job(strategy, of.type, 6, 1);
        spec.mutable_model()->set_hidden(26);
        spec.mutable_model()->set_ffn(of.ffn);
        const auto holdings = std::make_shared<SoftwareHoldings>();
        TrainOnDevices(spec, world, {.holdings = holdings});
        EXPECT_EQ(holdings->gelus > 0, of.ffn == 40);
        absl::MutexLock lock(&holdings->mutex);
        EXPECT_FALSE(holdings->product_keys.empty());
        if (reference.empty()) reference = holdings->product_keys;
        EXPECT_EQ(holdings->product_keys, reference) << strategy << " world " << world;
      }
    }
  }
}

// What backward computes again is what forward computed, though the product's GELU is not that of
// the kernel that backward has; and in bf16 every layer with a GELU is a product with an epilogue.
TEST_F(CudaTraining, RecomputationHasTheSameBitsAndGelusAreEpiloguesOfBf16) {
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    v1::JobSpec spec = Job("zero3", type);
    const auto kept = std::make_shared<SoftwareHoldings>();
    const auto again = std::make_shared<SoftwareHoldings>();
    const RunOutcome reference = TrainOnDevices(spec, 1, {.holdings = kept});
    spec.mutable_parallel()->set_recompute(v1::RECOMPUTE_BLOCK);
    ExpectSameBits(TrainOnDevices(spec, 1, {.holdings = again}), reference, "recomputed");
    const int64_t micro_batches = type == v1::DATA_TYPE_BF16 ? 2 * 3 : 0;  // of all steps
    EXPECT_EQ(kept->gelu_gradients, micro_batches * spec.model().layers());
    EXPECT_EQ(again->gelu_gradients, micro_batches * spec.model().layers());
    // Evaluation is forward passes more; all blocks but the last are computed again.
    EXPECT_GE(kept->gelus, micro_batches * spec.model().layers());
    EXPECT_EQ(again->gelus - kept->gelus, micro_batches * (spec.model().layers() - 1));
  }
}

TEST_F(CudaTraining, ALibraryWithoutEpiloguesHasTheProcessorsCurveToo) {
  const v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_BF16);
  const auto holdings = std::make_shared<SoftwareHoldings>();
  const RunOutcome device = TrainOnDevices(spec, 1, {.holdings = holdings, .epilogues = false});
  ExpectTheProcessorsCurve(device, TrainOnHost(spec, 1), v1::DATA_TYPE_BF16);
  EXPECT_EQ(holdings->gelus + holdings->gelu_gradients, 0);
}

// F20: what the ledger says that ops work in on a device is what they take of it, and it is
// reserved.
TEST_F(CudaTraining, TheLedgerPredictsWhatOpsWorkInToTheByte) {
  for (const bool llama : {false, true}) {
    for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
      for (const int tensor : {1, 2}) {
        v1::JobSpec spec = Job("zero3", type, 2, 1);
        if (llama) testing::MakeLlama(spec);
        spec.mutable_parallel()->set_tensor(tensor);
        spec.mutable_parallel()->set_sequence_parallel(tensor > 1);
        const Devices devices(2, {});
        LocalEpoch epoch;
        epoch.accelerators = devices.accelerators();
        const std::vector<RankRecord> ranks = LocalWorld(spec, 2, std::move(epoch)).Run();
        for (const RankRecord& rank : ranks) {
          ASSERT_TRUE(rank.result.status.ok()) << rank.result.status;
          ASSERT_FALSE(rank.ledgers.empty());
          const auto& scratch = rank.ledgers.back().memory().at("scratch");
          EXPECT_GT(scratch.measured(), 0);
          EXPECT_EQ(scratch.predicted(), scratch.measured())
              << (llama ? "llama " : "gpt2 ") << NameOf(type) << " tensor " << tensor;
        }
      }
    }
  }
}

// F8: late is as late as can be, guarded as early; and no schedule of threads changes a bit.
TEST_F(CudaTraining, HasTheSameBitsWheneverTheDeviceComputes) {
  const v1::JobSpec spec = Job("zero2", v1::DATA_TYPE_BF16, 3);
  const RunOutcome reference = TrainOnDevices(spec, 2, {.schedule = Schedule::kLate});
  ExpectSameBits(TrainOnDevices(spec, 2, {.schedule = Schedule::kGuarded}), reference, "guarded");
  ExpectSameBits(TrainOnDevices(spec, 2, {.order = simt::Order::kRandom}), reference, "random");
  ExpectSameBits(TrainOnDevices(spec, 2, {}, {v1::GROUP_KIND_SHARD, v1::GROUP_KIND_DATA}),
                 reference, "over TCP");
}

TEST_F(CudaTraining, SharesOutUnevenWorkWithTheSameBits) {
  const RunOutcome reference = TrainOnDevices(Job("zero3", v1::DATA_TYPE_BF16, 5), 1);
  for (const absl::string_view strategy : {"zero2", "zero3 kept"}) {
    ExpectSameBits(TrainOnDevices(Job(strategy, v1::DATA_TYPE_BF16, 5), 3), reference,
                   std::string(strategy));
  }
}

TEST_F(CudaTraining, TensorAndSequenceParallelismAndHybridShardingWorkToo) {
  for (const bool llama : {false, true}) {
    for (const bool sequence : {false, true}) {
      v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 2);
      if (llama) testing::MakeLlama(spec);
      const RunOutcome host = TrainOnHost(spec, 1);
      spec.mutable_parallel()->set_tensor(2);
      spec.mutable_parallel()->set_sequence_parallel(sequence);
      const RunOutcome device = TrainOnDevices(spec, 4);
      SCOPED_TRACE(absl::StrCat(llama ? "llama" : "gpt2", sequence ? " sequence" : ""));
      ExpectTheProcessorsCurve(device, host, v1::DATA_TYPE_FP32);
    }
  }
  const v1::DataType type = v1::DATA_TYPE_BF16;
  ExpectSameBits(TrainOnDevices(Job("hybrid 2", type, 4, 2), 4),
                 TrainOnDevices(Job("zero3", type, 4, 2), 1), "hybrid");
}

// ADR 15: state that passes through the device has the bits of state that stays there, under every
// strategy, with and without versions, however copies and computation fall.
TEST_F(CudaTraining, HasTheSameBitsWithItsStateOnTheHost) {
  const auto expect_same = [](v1::JobSpec spec, int world, const SoftwareDriverOptions& options,
                              const RunOutcome& reference, const std::string& what) {
    spec.mutable_parallel()->set_offload(v1::OFFLOAD_OPTIMIZER);
    SoftwareDriverOptions counted = options;
    counted.holdings = std::make_shared<SoftwareHoldings>();
    ExpectSameBits(TrainOnDevices(spec, world, counted), reference, what);
    EXPECT_TRUE(counted.holdings->empty()) << what;
  };
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    const RunOutcome reference = TrainOnDevices(Job("zero3", type, 4), 1);
    // With versions and without, in turns.
    int64_t replicas = type == v1::DATA_TYPE_FP32 ? 0 : 1;
    for (const int world : {1, 2, 3}) {
      for (const absl::string_view strategy : testing::StrategiesOf(world)) {
        v1::JobSpec spec = Job(strategy, type, 4);
        spec.mutable_elastic()->set_replicas(replicas);
        expect_same(spec, world, {.schedule = Schedule::kPriority}, reference,
                    absl::StrCat(strategy, " world ", world, " replicas ", replicas, " ",
                                 std::string(NameOf(type))));
        replicas = 1 - replicas;
      }
    }
    v1::JobSpec spec = Job("zero2", type, 4);
    spec.mutable_elastic()->set_replicas(1);
    for (const Schedule schedule : {Schedule::kLate, Schedule::kGuarded}) {
      expect_same(spec, 2, {.schedule = schedule}, reference,
                  schedule == Schedule::kLate ? "late" : "guarded");
    }
  }
}

TEST_F(CudaTraining, StateOnTheHostAndTensorParallelismGoTogether) {
  for (const bool llama : {false, true}) {
    v1::JobSpec spec = Job("zero3", llama ? v1::DATA_TYPE_FP32 : v1::DATA_TYPE_BF16, 2);
    if (llama) testing::MakeLlama(spec);
    spec.mutable_parallel()->set_tensor(2);
    const RunOutcome reference = TrainOnDevices(spec, 4);
    spec.mutable_parallel()->set_offload(v1::OFFLOAD_OPTIMIZER);
    ExpectSameBits(TrainOnDevices(spec, 4, {.schedule = Schedule::kPriority}), reference,
                   llama ? "llama" : "gpt2");
  }
}

// Of the driver's table, whether it is taken or, of versions, locked.
TEST_F(CudaTraining, StateOnTheHostNeedsLockedMemory) {
  for (const int64_t replicas : {0, 1}) {
    v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 1, 1);
    spec.mutable_parallel()->set_offload(v1::OFFLOAD_OPTIMIZER);
    spec.mutable_elastic()->set_replicas(replicas);
    SoftwareDriverOptions options;
    options.holdings = std::make_shared<SoftwareHoldings>();
    options.host_bytes = (16 << 20) + 1000;  // staging, and no state
    options.locks_pages = false;
    {
      Devices devices(1, options);
      LocalEpoch epoch;
      epoch.accelerators = devices.accelerators();
      const absl::Status status = LocalWorld(spec, 1, std::move(epoch)).Run()[0].result.status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(replicas > 0 ? "the optimizer's state, cannot be page-locked "
                                           "(cudaHostRegister failed"
                                         : "cuda:0: out of page-locked memory of the host"));
      // It is a good device for other jobs.
      EXPECT_TRUE(WhyBroken(*devices.accelerators()[0]).ok());
      spec.mutable_parallel()->set_offload(v1::OFFLOAD_NONE);
      LocalEpoch next;
      next.accelerators = devices.accelerators();
      EXPECT_TRUE(LocalWorld(spec, 1, std::move(next)).Run()[0].result.status.ok());
    }
    EXPECT_TRUE(options.holdings->empty());
  }
}

TEST_F(CudaTraining, GoesOnFromACheckpointAsIfNothingHadHappened) {
  for (const int64_t replicas : {0, 1}) {
    const std::string saved = scratch_ / absl::StrCat("saved", replicas);
    v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_BF16, 2, 4);
    spec.mutable_elastic()->set_replicas(replicas);
    spec.mutable_checkpoint()->set_dir(saved);
    spec.mutable_checkpoint()->set_every(2);
    const RunOutcome whole = TrainOnDevices(spec, 2);
    // Saved by two, read by one.
    spec.mutable_checkpoint()->set_dir(scratch_ / absl::StrCat("resumed", replicas));
    spec.mutable_checkpoint()->set_resume(StepDirectory(saved, 2, 1));
    const RunOutcome resumed = TrainOnDevices(spec, 1);
    ASSERT_EQ(resumed.curve.size(), 2u * 2 + 1) << replicas;
    EXPECT_EQ(resumed.curve.back(), whole.curve.back()) << replicas;
    EXPECT_TRUE(resumed.weights == whole.weights) << replicas;
  }
}

// Of which the driver's memory is made.
constexpr int64_t kPage = 4096;

// F19, F20, F36: a job that does not fit is refused, or ends with an error that says for what there
// was no room, and leaves the device as it found it, however much there was.
TEST_F(CudaTraining, AJobThatDoesNotFitSaysSoAndLeavesTheDeviceAsItWas) {
  const v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 1, 1);
  bool refused = false, ended = false;
  // In large steps up to what is not refused, then page by page from the last that was.
  int64_t step = 64 << 10;
  for (int64_t bytes = step;; bytes += step) {
    ASSERT_LT(bytes, 64 << 20);
    const auto holdings = std::make_shared<SoftwareHoldings>();
    absl::Status status;
    {
      Devices devices(1, {.memory_bytes = bytes, .holdings = holdings});
      LocalEpoch epoch;
      epoch.accelerators = devices.accelerators();
      status = LocalWorld(spec, 1, std::move(epoch)).Run()[0].result.status;
      EXPECT_EQ(devices.at(0).used_bytes(), 0);
    }
    EXPECT_TRUE(holdings->empty());
    const std::string text(status.message());
    const bool refuses = absl::StrContains(text, "a rank of this job takes");
    if (!refuses && step > kPage) {
      bytes -= step;
      step = kPage;
      continue;
    }
    if (status.ok()) break;
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    refused = refused || refuses;
    ended = ended || absl::StrContains(text, "cuda:0: out of device memory: ");
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(ended);
}

TEST_F(CudaTraining, JobAfterJobTakesNoMoreOfTheDevice) {
  const auto holdings = std::make_shared<SoftwareHoldings>();
  {
    Devices devices(2, {.holdings = holdings});
    int64_t slabs = 0;
    for (int job = 0; job < 3; ++job) {
      LocalEpoch epoch;
      epoch.accelerators = devices.accelerators();
      OutcomeOf(LocalWorld(Job("zero3", v1::DATA_TYPE_BF16, 2, 1), 2, std::move(epoch)).Run());
      EXPECT_EQ(devices.at(0).used_bytes(), 0);
      if (job == 0) slabs = devices.at(0).slab_bytes();
      EXPECT_EQ(devices.at(0).slab_bytes(), slabs);
    }
    EXPECT_GT(holdings->launches, 0);
    EXPECT_GT(holdings->products, 0);
  }
  EXPECT_TRUE(holdings->empty());
}

// F20: a job whose heads the device has no attention for ends there before anything begins, and
// would at every other attempt; it is the device's limit alone.
TEST_F(CudaTraining, HeadsThatTheDeviceHasNoKernelsForEndAJobBeforeItBegins) {
  v1::JobSpec spec = Job("zero3", v1::DATA_TYPE_FP32, 2, 1);
  spec.mutable_model()->set_hidden(264);
  spec.mutable_model()->set_heads(1);
  spec.mutable_model()->set_kv_heads(1);
  ASSERT_EQ(ValidateJobSpec(spec).fields_size(), 0);
  const auto holdings = std::make_shared<SoftwareHoldings>();
  const Devices devices(1, {.holdings = holdings});
  const int64_t bytes = devices.at(0).slab_bytes();
  LocalEpoch epoch;
  epoch.accelerators = devices.accelerators();
  const RankRecord rank = LocalWorld(spec, 1, std::move(epoch)).Run()[0];
  EXPECT_EQ(rank.result.status,
            absl::FailedPreconditionError("heads of this job have 264 channels, and cuda:0 takes "
                                          "at most 256; use more heads, or workers on processors "
                                          "alone"));
  EXPECT_TRUE(rank.result.final);
  EXPECT_FALSE(rank.ready);
  EXPECT_EQ(holdings->launches, 0);
  EXPECT_EQ(devices.at(0).slab_bytes(), bytes);
  EXPECT_TRUE(devices.at(0).status().ok());

  EXPECT_EQ(TrainOnHost(spec, 1).curve.size(), 2u + 1);
}

// A device that fails in the middle ends the job on all ranks, with the cause on its own.
TEST_F(CudaTraining, ADeviceThatFailsEndsTheJobOnAllRanks) {
  Devices good(1, {});
  Devices bad(1, {.failing_call = "cublasLtMatmul", .failing_time = 60});
  LocalEpoch epoch;
  epoch.accelerators = {good.accelerators()[0], bad.accelerators()[0]};
  LocalWorld world(Job("zero3", v1::DATA_TYPE_FP32, 2, 50), 2, std::move(epoch));
  const std::vector<RankRecord> ranks = world.Run();
  EXPECT_THAT(std::string(ranks[1].result.status.message()),
              HasSubstr("cuda:0: a product of matrices"));
  EXPECT_FALSE(ranks[0].result.status.ok());
}

}  // namespace
}  // namespace sherd
