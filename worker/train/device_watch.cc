#include "worker/train/device_watch.h"

#include <utility>

namespace sherd {
namespace {

class WatchingTrainer final : public Trainer {
 public:
  WatchingTrainer(std::unique_ptr<Trainer> trainer, const Accelerator& device,
                  std::function<void(const absl::Status&)> on_broken)
      : trainer_(std::move(trainer)), device_(device), on_broken_(std::move(on_broken)) {}

  TrainResult Run(TrainObserver& observer) override {
    TrainResult result = trainer_->Run(observer);
    if (const absl::Status why = WhyBroken(device_); !why.ok()) on_broken_(why);
    return result;
  }
  void Abort(absl::string_view reason) override { trainer_->Abort(reason); }
  void Pause() override { trainer_->Pause(); }
  TrainPosition Position() override { return trainer_->Position(); }

 private:
  const std::unique_ptr<Trainer> trainer_;
  const Accelerator& device_;
  const std::function<void(const absl::Status&)> on_broken_;
};

}  // namespace

absl::Status WhyBroken(const Accelerator& device) {
  const absl::Status status = device.status();
  return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
}

std::unique_ptr<Trainer> WatchDevice(std::unique_ptr<Trainer> trainer, const Accelerator& device,
                                     std::function<void(const absl::Status&)> on_broken) {
  return std::make_unique<WatchingTrainer>(std::move(trainer), device, std::move(on_broken));
}

}  // namespace sherd
