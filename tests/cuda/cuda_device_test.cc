#include "kernels/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cuda/software_device.h"

namespace sherd {
namespace {

using simt::Schedule;
using simt::SoftwareDriverOptions;
using simt::SoftwareHoldings;
using ::testing::HasSubstr;

// Longer than both pieces of staging, and odd.
constexpr int64_t kLong = 3 * Staging::kPieceBytes + 4099;

std::vector<std::byte> Counting(int64_t bytes) {
  std::vector<std::byte> values(static_cast<size_t>(bytes));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  return values;
}

class CudaDeviceSchedules : public ::testing::TestWithParam<Schedule> {};

TEST_P(CudaDeviceSchedules, CopiesAnyLengthInAndOutInOrder) {
  const auto device = OpenSoftwareDevice({.schedule = GetParam()});
  MemoryMeter meter(device->memory());
  const std::vector<std::byte> sent = Counting(kLong);
  for (const int64_t bytes : {int64_t{1}, Staging::kPieceBytes, kLong}) {
    const Buffer there(meter, Pool::kParams, bytes);
    const Buffer copy(meter, Pool::kParams, bytes);
    std::vector<std::byte> host(sent.begin(), sent.begin() + bytes);
    device->CopyIn(there.data(), host.data(), bytes);
    // It may be reused.
    std::fill(host.begin(), host.end(), std::byte{0});
    device->CopyWithin(copy.data(), there.data(), bytes);
    device->CopyOut(host.data(), copy.data(), bytes);
    ASSERT_TRUE(device->status().ok()) << device->status();
    EXPECT_TRUE(std::equal(host.begin(), host.end(), sent.begin())) << bytes;
  }
}

TEST_P(CudaDeviceSchedules, MemoryIsZeroedAlsoWhenItIsTakenAgain) {
  const auto device = OpenSoftwareDevice({.schedule = GetParam()});
  MemoryMeter meter(device->memory());
  const std::vector<std::byte> ones(4096, std::byte{0xff});
  for (int time = 0; time < 3; ++time) {
    const Buffer buffer(meter, Pool::kGrads, 4096);
    std::vector<std::byte> seen = ones;
    device->CopyOut(seen.data(), buffer.data(), 4096);
    EXPECT_EQ(seen, std::vector<std::byte>(4096)) << time;
    device->CopyIn(buffer.data(), ones.data(), 4096);
  }
  EXPECT_EQ(meter.current(Pool::kGrads), 0);
  EXPECT_EQ(meter.peak(Pool::kGrads), 4096);
}

TEST_P(CudaDeviceSchedules, WhatIsFetchedAfterAMarkIsWhatWasComputedBefore) {
  const auto device = OpenSoftwareDevice({.schedule = GetParam()});
  MemoryMeter meter(device->memory());
  const Buffer buffer(meter, Pool::kGrads, 1000);
  const std::vector<std::byte> sent = Counting(1000);
  device->CopyIn(buffer.data(), sent.data(), 1000);
  const std::shared_ptr<DeviceMark> mark = device->Mark();
  std::vector<std::byte> fetched(1000);
  std::thread other([&] {
    EXPECT_TRUE(mark->Await().ok());
    EXPECT_TRUE(device->Fetch(fetched.data(), buffer.data(), 1000).ok());
  });
  other.join();
  EXPECT_EQ(fetched, sent);

  const std::vector<std::byte> delivered = Counting(2000);
  EXPECT_TRUE(device->Deliver(buffer.data(), delivered.data() + 1000, 1000).ok());
  device->CopyOut(fetched.data(), buffer.data(), 1000);
  EXPECT_TRUE(std::equal(fetched.begin(), fetched.end(), delivered.begin() + 1000));
}

INSTANTIATE_TEST_SUITE_P(All, CudaDeviceSchedules,
                         ::testing::Values(Schedule::kGuarded, Schedule::kLate),
                         [](const auto& info) {
                           return info.param == Schedule::kGuarded ? "Guarded" : "Late";
                         });

// F19
TEST(CudaDevice, OutOfMemoryIsRememberedWithTheDevicesName) {
  const auto device = OpenSoftwareDevice({.memory_bytes = 8 << 20});
  MemoryMeter meter(device->memory());
  const Buffer fits(meter, Pool::kParams, 4 << 20);
  const Buffer large(meter, Pool::kActivations, 5 << 20);
  EXPECT_NE(fits.data(), nullptr);
  EXPECT_EQ(large.data(), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(device->status()));
  EXPECT_THAT(std::string(device->status().message()),
              HasSubstr("cuda:0: out of device memory: 5.0 MiB for activations"));
  // Nothing is done after it.
  const Buffer small(meter, Pool::kParams, 1);
  EXPECT_EQ(small.data(), nullptr);
  EXPECT_FALSE(device->Synchronize().ok());
}

// Every call of the driver is checked: whichever fails, the error names it and where it was made,
// and nothing is left behind (F36).
TEST(CudaDevice, EveryCallThatFailsIsNamedAndLeavesNothing) {
  for (const char* const call :
       {"cudaMalloc", "cudaMallocHost", "cudaStreamCreate", "cudaEventCreate", "cudaEventRecord",
        "cudaEventSynchronize", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMemsetAsync"}) {
    for (const int time : {1, 2}) {
      const auto holdings = std::make_shared<SoftwareHoldings>();
      absl::Status status;
      {
        auto device = TryOpenSoftwareDevice(
            {.holdings = holdings, .failing_call = call, .failing_time = time});
        status = device.status();
        if (device.ok()) {
          MemoryMeter meter((*device)->memory());
          std::vector<std::byte> host(100);
          for (int i = 0; i < 3; ++i) {
            const Buffer buffer(meter, Pool::kParams, 40 << 20);
            (*device)->CopyIn(buffer.data(), host.data(), 100);
            (*device)->Mark()->Await().IgnoreError();
            (*device)->CopyOut(host.data(), buffer.data(), 100);
            (*device)->Fetch(host.data(), buffer.data(), 100).IgnoreError();
            (*device)->Deliver(buffer.data(), host.data(), 100).IgnoreError();
            (*device)->Synchronize().IgnoreError();
            const Buffer second(meter, Pool::kParams, 40 << 20);
            const Buffer third(meter, Pool::kParams, 40 << 20);
          }
          status = (*device)->status();
        }
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << call << " " << time;
      EXPECT_THAT(std::string(status.message()),
                  ::testing::MatchesRegex(
                      absl::StrCat("cuda:0: ", call, " failed at [a-z_]+\\.cc:[0-9]+: made to .*")))
          << call << " " << time;
      EXPECT_TRUE(holdings->empty()) << call << " " << time;
    }
  }
}

TEST(CudaDevice, IsFoundAsItWasAfterJobs) {
  const auto holdings = std::make_shared<SoftwareHoldings>();
  {
    const auto device = OpenSoftwareDevice({.holdings = holdings});
    const int64_t before = device->free_bytes();
    for (int job = 0; job < 3; ++job) {
      MemoryMeter meter(device->memory());
      const std::unique_ptr<Ops> ops = device->MakeOps({.meter = &meter, .bf16 = true});
      const Buffer buffer(meter, Pool::kParams, 1 << 20);
      EXPECT_LT(device->free_bytes(), before);
    }
    EXPECT_EQ(device->used_bytes(), 0);
    EXPECT_EQ(device->free_bytes(), before);
  }
  EXPECT_TRUE(holdings->empty());
}

}  // namespace
}  // namespace sherd
