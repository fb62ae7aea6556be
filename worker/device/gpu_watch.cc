#include "worker/device/gpu_watch.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/steady_await.h"

namespace sherd {

GpuWatch::GpuWatch(Options options) : options_(std::move(options)), held_(GpuReadings::count()) {
  thread_ = std::thread([this] { Run(); });
}

GpuWatch::~GpuWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

GpuWatch::View GpuWatch::Look() {
  absl::MutexLock lock(&mutex_);
  const auto answered = [this, wanted = ++asked_] {
    mutex_.AssertReaderHeld();
    return closed_ || answered_ >= wanted;
  };
  AwaitSteadily(mutex_, absl::Condition(&answered), options_.limit);
  View view{uuid_, {}};
  const std::chrono::steady_clock::time_point now = options_.now();
  for (const Held& held : held_) {
    if (absl::FromChrono(now - held.read_at) > options_.lifetime) continue;
    view.samples.insert(view.samples.end(), held.samples.begin(), held.samples.end());
  }
  return view;
}

void GpuWatch::Run() {
  const absl::StatusOr<std::unique_ptr<GpuReadings>> gpu =
      GpuReadings::Open(options_.library, options_.pci_address);
  if (!gpu.ok()) {
    Log(Severity::kWarning, absl::StrCat("no readings of the GPU: ", gpu.status().message()));
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    return;
  }
  const auto wanted = [this] {
    mutex_.AssertReaderHeld();
    return stopping_ || asked_ > answered_;
  };
  while (true) {
    uint64_t asked = 0;
    {
      absl::MutexLock lock(&mutex_);
      uuid_ = (*gpu)->uuid();
      mutex_.Await(absl::Condition(&wanted));
      if (stopping_) return;
      asked = asked_;
    }
    ReadAll(**gpu);
    absl::MutexLock lock(&mutex_);
    answered_ = asked;
  }
}

void GpuWatch::ReadAll(const GpuReadings& gpu) {
  for (size_t reading = 0; reading < GpuReadings::count(); ++reading) {
    absl::StatusOr<std::vector<GpuSample>> samples = gpu.Read(reading);
    bool tell = false;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      Held& held = held_[reading];
      held.read_at = options_.now();
      tell = !samples.ok() && !std::exchange(held.told, true);
      held.samples = samples.ok() ? *std::move(samples) : std::vector<GpuSample>();
    }
    if (!tell) continue;
    Log(Severity::kInfo,
        absl::StrCat("a reading of the GPU is left out: ", samples.status().message()));
  }
}

}  // namespace sherd
