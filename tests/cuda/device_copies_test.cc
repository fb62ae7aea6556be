// Memory of a device and what travels to and from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/staging.h"
#include "tests/cuda/tested_devices.h"

namespace sherd {
namespace {

// Longer than both pieces of staging, and odd.
constexpr int64_t kLong = 3 * Staging::kPieceBytes + 4099;

std::vector<std::byte> Counting(int64_t bytes) {
  std::vector<std::byte> values(static_cast<size_t>(bytes));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  return values;
}

class DeviceCopies : public ::testing::TestWithParam<TestedDevice> {};

TEST_P(DeviceCopies, CopiesAnyLengthInAndOutInOrder) {
  const auto device = GetParam().open();
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

TEST_P(DeviceCopies, MemoryIsZeroedAlsoWhenItIsTakenAgain) {
  const auto device = GetParam().open();
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

TEST_P(DeviceCopies, WhatIsFetchedAfterAMarkIsWhatWasComputedBefore) {
  const auto device = GetParam().open();
  MemoryMeter meter(device->memory());
  const Buffer buffer(meter, Pool::kGrads, 1000);
  const std::vector<std::byte> sent = Counting(1000);
  device->CopyIn(buffer.data(), sent.data(), 1000);
  const std::shared_ptr<DeviceMark> mark = device->Mark();
  std::vector<std::byte> fetched(1000);
  std::thread other([&] {
    while (!mark->passed()) std::this_thread::yield();
    EXPECT_TRUE(device->Fetch(fetched.data(), buffer.data(), 1000).ok());
  });
  other.join();
  EXPECT_EQ(fetched, sent);

  const std::vector<std::byte> delivered = Counting(2000);
  EXPECT_TRUE(device->Deliver(buffer.data(), delivered.data() + 1000, 1000).ok());
  device->CopyOut(fetched.data(), buffer.data(), 1000);
  EXPECT_TRUE(std::equal(fetched.begin(), fetched.end(), delivered.begin() + 1000));
}

// ADR 15: from locked memory, and memory that is locked for a while, to the device and back beside
// the computation, in the order that fences give them.
TEST_P(DeviceCopies, LanesCopyInTheOrderOfTheirFences) {
  const auto device = GetParam().open();
  MemoryMeter meter(device->memory());
  const Buffer there(meter, Pool::kStaging, kLong);
  const Buffer copy(meter, Pool::kParams, kLong);
  const std::vector<std::byte> sent = Counting(kLong);
  std::vector<std::byte> back(static_cast<size_t>(kLong));
  device->Lock(back.data(), kLong);
  std::byte* const locked = device->locked_memory()->Take(Pool::kOptimizer, kLong);
  ASSERT_NE(locked, nullptr);
  EXPECT_TRUE(
      std::all_of(locked, locked + kLong, [](std::byte each) { return each == std::byte{0}; }));
  std::copy(sent.begin(), sent.end(), locked);
  const auto zeroed = device->MakeFence(), arrived = device->MakeFence();
  const auto worked = device->MakeFence();
  device->Record(Lane::kCompute, *zeroed);
  device->Await(Lane::kIn, *zeroed);
  device->Copy(Lane::kIn, there.data(), locked, kLong);
  device->Record(Lane::kIn, *arrived);
  device->Await(Lane::kCompute, *arrived);
  device->CopyWithin(copy.data(), there.data(), kLong);
  device->Record(Lane::kCompute, *worked);
  device->Await(Lane::kOut, *worked);
  device->Copy(Lane::kOut, back.data(), copy.data(), kLong);
  ASSERT_TRUE(device->Synchronize().ok()) << device->status();
  device->Unlock(back.data());
  device->locked_memory()->Give(locked);
  EXPECT_EQ(back, sent);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCopies, ::testing::ValuesIn(TestedDevices()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sherd
