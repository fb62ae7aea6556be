// Offloaded state on the software device: what may run at the same time, what may not, and that a
// wait that is missing shows.
#include "worker/train/state_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cuda/recording_driver.h"
#include "tests/cuda/software_device.h"

namespace sherd {
namespace {

using simt::Schedule;
using simt::SoftwareDriver;
using simt::SoftwareDriverOptions;
using simt::SoftwareHoldings;

constexpr int64_t kChunk = 64;
// Eleven chunks, the last one odd.
constexpr int64_t kElements = 10 * kChunk + 27;
constexpr int64_t kChunks = 11;

// Arrays in locked memory.
struct Home {
  explicit Home(CudaDevice& device) : source(device.locked_memory()) {
    memory = source->Take(Pool::kOptimizer, 3 * kElements * int64_t{sizeof(float)});
    auto* const begin = reinterpret_cast<float*>(memory);
    if (begin != nullptr) state = {begin, begin + kElements, begin + 2 * kElements};
  }
  ~Home() { source->Give(memory); }
  std::vector<float> values() const { return {state.master, state.master + 3 * kElements}; }

  MemorySource* const source;
  std::byte* memory;
  AdamWState state;
};

void Fill(float* values, int64_t count, float first) {
  for (int64_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i) / 1024;
}

constexpr AdamWParams kParams = {.lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .step = 3,
                                 .grad_scale = 0.5f};

// What two updates through a ring leave at home, or of one piece that is on the device; of bf16
// parameters and their own masters, or fp32 ones that stay there.
struct Updated {
  std::vector<float> home;
  std::vector<std::byte> params;
  bool operator==(const Updated&) const = default;
};
Updated UpdateTwice(const SoftwareDriverOptions& options, DType type, bool ringed) {
  const auto device = OpenSoftwareDevice(options);
  MemoryMeter meter(device->memory());
  const auto ops = device->MakeOps({.meter = &meter, .bf16 = true});
  const int64_t bytes = kElements * SizeOf(type);
  const Buffer params(meter, Pool::kParams, bytes);
  const Buffer grads(meter, Pool::kGrads, kElements * int64_t{sizeof(float)});
  std::vector<float> gradients(static_cast<size_t>(kElements));
  Fill(gradients.data(), kElements, -0.3f);
  device->CopyIn(grads.data(), gradients.data(), grads.bytes());
  const Home home(*device), other(*device);
  Fill(home.state.master, 3 * kElements, 1);
  if (type == DType::kF32) device->CopyIn(params.data(), home.state.master, bytes);
  const auto update = [&](int64_t begin, int64_t end, const AdamWState& at) {
    ops->AdamW({params.data() + begin * SizeOf(type), type, false}, at, at,
               grads.as<float>() + begin, DType::kF32, kParams, end - begin);
  };
  float* const masters = type == DType::kF32 ? params.as<float>() : nullptr;
  if (ringed) {
    StateRing ring(kChunk, type != DType::kF32, *device, meter);
    // To another home and back, as versions do.
    ring.Update(home.state, other.state, masters, 0, kElements, update);
    device->Synchronize().IgnoreError();
    ring.Update(other.state, home.state, masters, 0, kElements, update);
    device->Synchronize().IgnoreError();
  } else {
    const Buffer state(meter, Pool::kOptimizer, 3 * kElements * int64_t{sizeof(float)});
    AdamWState at = {state.as<float>(), state.as<float>() + kElements,
                     state.as<float>() + 2 * kElements};
    device->CopyIn(at.master, home.state.master, state.bytes());
    if (masters != nullptr) at.master = masters;
    for (int time = 0; time < 2; ++time) update(0, kElements, at);
    device->CopyOut(home.state.master, at.master, kElements * int64_t{sizeof(float)});
    device->CopyOut(home.state.m, at.m, 2 * kElements * int64_t{sizeof(float)});
  }
  Updated updated{home.values(), std::vector<std::byte>(static_cast<size_t>(bytes))};
  device->CopyOut(updated.params.data(), params.data(), bytes);
  EXPECT_TRUE(device->status().ok()) << device->status();
  return updated;
}

TEST(StateRing, UpdatesWithTheBitsOfStateThatIsOnTheDevice) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Updated reference = UpdateTwice({}, type, /*ringed=*/false);
    for (const Schedule schedule : {Schedule::kLate, Schedule::kGuarded, Schedule::kPriority}) {
      EXPECT_TRUE(UpdateTwice({.schedule = schedule}, type, /*ringed=*/true) == reference)
          << (type == DType::kF32 ? "fp32 " : "bf16 ") << static_cast<int>(schedule);
    }
  }
}

// Each one that is missing is seen, on a device that computes late or one that copies early. The
// first chunks that arrive wait for nothing, but the very first for the ring's memory to be zeroed.
TEST(StateRing, EveryWaitIsNeeded) {
  const Updated reference = UpdateTwice({}, DType::kBF16, /*ringed=*/true);
  for (int wait = 1; wait <= 2 * 3 * kChunks; ++wait) {
    const int chunk = (wait - 1) / 3 % static_cast<int>(kChunks);
    const bool arrives = (wait - 1) % 3 == 0;
    // Between the two updates the host waits for all of the first.
    if (arrives && chunk < kOffloadSlots && wait > 1) continue;
    bool seen = false;
    for (const Schedule schedule : {Schedule::kLate, Schedule::kPriority}) {
      seen = seen || UpdateTwice({.schedule = schedule, .forgotten_wait = wait}, DType::kBF16,
                                 /*ringed=*/true) != reference;
    }
    EXPECT_TRUE(seen) << "wait " << wait << ", of chunk " << chunk;
  }
}

bool Overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

class StateRingOrder : public ::testing::Test {
 protected:
  // A ring's copies of one update, whose computation is a copy within each chunk, too.
  void SetUp() override {
    auto opened = CudaDevice::Open(
        std::make_unique<RecordingDriver>(std::make_unique<SoftwareDriver>(), noted_), "cuda:0");
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = *std::move(opened);
    MemoryMeter meter(device_->memory());
    const Home home(*device_), other(*device_);
    StateRing ring(kChunk, /*with_masters=*/true, *device_, meter);
    const int64_t waited = noted_.waits_of_host();
    ring.Update(home.state, other.state, nullptr, 0, kElements,
                [&](int64_t begin, int64_t end, const AdamWState& chunk) {
                  device_->CopyWithin(chunk.master, chunk.m,
                                      (end - begin) * int64_t{sizeof(float)});
                });
    EXPECT_EQ(noted_.waits_of_host(), waited);
    ASSERT_EQ(noted_.copies().size(), static_cast<size_t>(kChunks * kPerChunk));
  }

  // Of a chunk: three arrays come, one update, three arrays leave.
  static constexpr int64_t kPerChunk = 7;
  enum Part : uint8_t { kComes, kIsUpdated = 3, kLeaves = 4 };
  static size_t Of(int64_t chunk, Part part) {
    return static_cast<size_t>(chunk * kPerChunk + part);
  }

  EnqueuedCopies noted_;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(StateRingOrder, WhatTouchesTheSameBytesIsOrdered) {
  const std::vector<EnqueuedCopies::Copy>& copies = noted_.copies();
  for (size_t b = 0; b < copies.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      const bool conflict =
          Overlap(copies[a].to, copies[a].bytes, copies[b].to, copies[b].bytes) ||
          Overlap(copies[a].to, copies[a].bytes, copies[b].from, copies[b].bytes) ||
          Overlap(copies[a].from, copies[a].bytes, copies[b].to, copies[b].bytes);
      EXPECT_FALSE(conflict && noted_.Independent(a, b)) << a << " and " << b;
    }
  }
}

TEST_F(StateRingOrder, TheNextComesAndTheLastLeavesBesideAnUpdate) {
  for (int64_t chunk = 1; chunk + 1 < kChunks; ++chunk) {
    const size_t update = Of(chunk, kIsUpdated);
    EXPECT_TRUE(noted_.Independent(Of(chunk + 1, kComes), update)) << chunk;
    EXPECT_TRUE(noted_.Independent(Of(chunk - 1, kLeaves), update)) << chunk;
    EXPECT_TRUE(noted_.Independent(Of(chunk + 1, kComes), Of(chunk - 1, kLeaves))) << chunk;
  }
  // And no further than there are chunks of memory.
  for (int64_t chunk = 0; chunk + kOffloadSlots < kChunks; ++chunk) {
    EXPECT_FALSE(noted_.Independent(Of(chunk + kOffloadSlots, kComes), Of(chunk, kLeaves)));
  }
}

// The same seen from the work: copies that nothing holds up are done before any update has begun.
TEST(StateRing, CopiesOfTheNextChunksAreDoneBeforeTheFirstIsUpdated) {
  const auto device = OpenSoftwareDevice({.schedule = Schedule::kPriority});
  MemoryMeter meter(device->memory());
  const Home home(*device);
  Fill(home.state.master, 3 * kElements, 1);
  StateRing ring(kChunk, /*with_masters=*/true, *device, meter);
  ASSERT_TRUE(device->Synchronize().ok());
  std::vector<const float*> chunks;
  const std::vector<float> sent = home.values();
  ring.Update(home.state, home.state, nullptr, 0, kElements,
              [&](int64_t, int64_t, const AdamWState& chunk) { chunks.push_back(chunk.master); });
  // Nothing was computed, and nothing has been waited for: the ring is full, and no more has come.
  ASSERT_EQ(chunks.size(), static_cast<size_t>(kChunks));
  EXPECT_EQ(home.values(), sent);
  for (int64_t chunk = 0; chunk < kOffloadSlots; ++chunk) {
    const float* const there = chunks[static_cast<size_t>(chunk)];
    EXPECT_TRUE(std::equal(there, there + kChunk, sent.begin() + chunk * kChunk)) << chunk;
  }
  EXPECT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(home.values(), sent);
}

// F36: locked memory is the driver's, and goes back to it; also what was only locked.
TEST(StateRing, LockedMemoryComesFromTheDriverAndGoesBack) {
  const auto holdings = std::make_shared<SoftwareHoldings>();
  {
    const auto device = OpenSoftwareDevice({.holdings = holdings});
    const int64_t before = holdings->host_bytes;
    std::vector<std::byte> pages(4096);
    {
      const Home home(*device);
      EXPECT_EQ(holdings->host_bytes - before, 3 * kElements * int64_t{sizeof(float)});
      for (const float value : home.values()) ASSERT_EQ(value, 0);
      device->Lock(pages.data(), 4096);
      EXPECT_EQ(holdings->registered_bytes, 4096);
      MemoryMeter meter(device->memory());
      const Buffer there(meter, Pool::kParams, 4096);
      device->Copy(Lane::kIn, there.data(), pages.data(), 4096);
      device->Unlock(pages.data());
      EXPECT_EQ(holdings->registered_bytes, 0);
      EXPECT_TRUE(device->status().ok());
      // Pageable memory is none that a lane copies.
      device->Copy(Lane::kIn, there.data(), pages.data(), 4096);
      EXPECT_FALSE(device->status().ok());
    }
    EXPECT_EQ(holdings->host_bytes, before);
  }
  EXPECT_TRUE(holdings->empty());
}

// F19
TEST(StateRing, LockedMemoryThatThereIsNotSaysWhatItWasFor) {
  const auto device = OpenSoftwareDevice({.host_bytes = 20 << 20});
  EXPECT_EQ(device->locked_memory()->Take(Pool::kOptimizer, 5 << 20), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(device->status()));
  EXPECT_EQ(device->status().message(),
            "cuda:0: out of page-locked memory of the host: 5.0 MiB for optimizer");
  // The next job may fit.
  device->Reserve(1 << 20);
  std::byte* const fits = device->locked_memory()->Take(Pool::kOptimizer, 1 << 20);
  EXPECT_NE(fits, nullptr);
  device->locked_memory()->Give(fits);
}

}  // namespace
}  // namespace sherd
