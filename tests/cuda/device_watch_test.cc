// What a worker does about a device that has failed.
#include "worker/train/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/software_device.h"

namespace sherd {
namespace {

class NoObserver final : public TrainObserver {
 public:
  void OnReady(const v1::RankReady&) override {}
  void OnStep(const v1::StepReport&) override {}
  void OnEval(const v1::EvalReport&) override {}
  void OnLedger(const v1::RankLedger&) override {}
  void OnLog(absl::string_view) override {}
  void OnWarning(const v1::Warning&) override {}
  void OnCheckpoint(const v1::CheckpointReport&) override {}
};

// Takes memory of its device, as much as it is told.
class TakingTrainer final : public Trainer {
 public:
  TakingTrainer(CudaDevice& device, int64_t bytes) : device_(device), bytes_(bytes) {}
  TrainResult Run(TrainObserver&) override {
    MemoryMeter meter(device_.memory());
    const Buffer buffer(meter, Pool::kParams, bytes_);
    TrainResult result;
    result.status = device_.Synchronize();
    result.step = 7;
    return result;
  }
  void Abort(absl::string_view) override {}
  void Pause() override {}
  TrainPosition Position() override { return {.step = 5, .operation = "taking"}; }

 private:
  CudaDevice& device_;
  const int64_t bytes_;
};

// What is told of the device when a trainer has run on it.
std::vector<std::string> ToldOf(const simt::SoftwareDriverOptions& options, int64_t bytes) {
  const auto device = OpenSoftwareDevice(options);
  std::vector<std::string> told;
  const std::unique_ptr<Trainer> trainer =
      WatchDevice(std::make_unique<TakingTrainer>(*device, bytes), *device,
                  [&](const absl::Status& why) { told.emplace_back(why.message()); });
  EXPECT_EQ(trainer->Position().step, 5);
  NoObserver observer;
  const TrainResult result = trainer->Run(observer);
  EXPECT_EQ(result.step, 7);
  EXPECT_EQ(result.status, device->status());
  return told;
}

TEST(DeviceWatch, TellsOfADeviceThatHasFailedOnce) {
  EXPECT_THAT(ToldOf({.failing_call = "cudaMemsetAsync"}, 100),
              ::testing::ElementsAre(::testing::StartsWith("cuda:0: cudaMemsetAsync failed at ")));
}

TEST(DeviceWatch, ADeviceThatIsWellOrOutOfMemoryIsNotBroken) {
  EXPECT_THAT(ToldOf({}, 100), ::testing::IsEmpty());
  EXPECT_THAT(ToldOf({.memory_bytes = 4 << 20}, 8 << 20), ::testing::IsEmpty());
}

}  // namespace
}  // namespace sherd
