#include "kernels/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
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

class CudaDeviceSchedules : public ::testing::TestWithParam<Schedule> {};

// The first product that fails ends the device, and the error says which it was.
TEST_P(CudaDeviceSchedules, AProductThatFailsSaysWhichAndNothingIsDoneAfterIt) {
  const auto device = OpenSoftwareDevice(
      {.schedule = GetParam(), .failing_call = "cublasLtMatmul", .failing_time = 1});
  MemoryMeter meter(device->memory());
  const auto ops = device->MakeOps({.meter = &meter, .bf16 = true});
  const Buffer x(meter, Pool::kActivations, 4 * 6), w(meter, Pool::kParams, 4 * 12),
      y(meter, Pool::kActivations, 4 * 8);
  ops->LinearForward(x.as<float>(), {w.data(), DType::kF32}, {nullptr, DType::kF32}, y.as<float>(),
                     2, 3, 4);
  EXPECT_THAT(std::string(device->status().message()),
              HasSubstr("a product of matrices (2 × 3) · (4 × 3)ᵀ of bf16, to fp32 failed: "));
  double loss = 1;
  ops->CrossEntropy(y.as<float>(), nullptr, 1, 1, loss);
  EXPECT_EQ(loss, 1);
}

// A GPU faults where the processor would read on: whatever is given memory of the host fails here
// as well.
TEST_P(CudaDeviceSchedules, MemoryOfTheHostIsRefusedByKernelsProductsAndCopies) {
  std::vector<float> host(64);
  struct Case {
    const char* text;
    std::function<void(CudaDevice&, Ops&, float*)> run;
  };
  const Case cases[] = {
      {"GeluForwardKernel: a pointer is to memory that is not the device's",
       [&](CudaDevice&, Ops& ops, float* there) { ops.GeluForward(host.data(), there, 8); }},
      {"GeluForwardKernel: a pointer is to memory that is not the device's",
       [&](CudaDevice&, Ops& ops, float* there) { ops.GeluForward(there, host.data(), 8); }},
      // A pointer within a structure.
      {": a pointer is to memory that is not the device's",
       [&](CudaDevice&, Ops& ops, float* there) {
         const AdamWState state{there, there + 8, there + 16};
         const AdamWState wrong{there, host.data(), there + 16};
         ops.AdamW({there + 24, DType::kF32, false}, state, wrong, there + 32, DType::kF32,
                   {.lr = 1,
                    .beta1 = 0.9,
                    .beta2 = 0.9,
                    .eps = 1,
                    .weight_decay = 0,
                    .step = 1,
                    .grad_scale = 1},
                   8);
       }},
      {"failed: an illegal memory access (700)",
       [&](CudaDevice&, Ops& ops, float* there) {
         ops.LinearForward(host.data(), {there, DType::kF32}, {nullptr, DType::kF32}, there + 8, 2,
                           2, 2);
       }},
      {"failed: an illegal memory access (700)",
       [&](CudaDevice&, Ops& ops, float* there) {
         ops.LinearBackwardInput(there, {there, DType::kF32}, host.data(), 2, 2, 2, false);
       }},
      {"cudaMemcpyAsync failed",
       [&](CudaDevice& device, Ops&, float* there) { device.CopyWithin(there, host.data(), 8); }},
  };
  for (const Case& wrong : cases) {
    const auto device = OpenSoftwareDevice({.schedule = GetParam()});
    MemoryMeter meter(device->memory());
    const auto ops = device->MakeOps({.meter = &meter, .bf16 = false});
    const Buffer there(meter, Pool::kActivations, 1024);
    wrong.run(*device, *ops, there.as<float>());
    EXPECT_TRUE(absl::IsInternal(device->Synchronize())) << wrong.text;
    EXPECT_THAT(std::string(device->status().message()), HasSubstr(wrong.text));
  }
}

// F28: what the library does not compute is told as that: with its call, its answer, the shapes as
// they are stored, and all types.
TEST_P(CudaDeviceSchedules, AProductThatTheLibraryRefusesIsToldByCallShapesAndTypes) {
  struct Case {
    const char* text;
    std::function<void(Ops&, float*)> run;
  };
  const Case cases[] = {
      {"(2 × 3) · (4 × 3)ᵀ of bf16, to fp32, with a bias",
       [](Ops& ops, float* m) {
         ops.LinearForward(m, {m, DType::kF32}, {m, DType::kF32}, m + 64, 2, 3, 4);
       }},
      {"(2 × 4) · (4 × 3) of bf16, added to fp32",
       [](Ops& ops, float* m) {
         ops.LinearBackwardInput(m, {m, DType::kF32}, m + 64, 2, 3, 4, /*accumulate=*/true);
       }},
      {"(5 × 2)ᵀ · (5 × 3) of bf16, to bf16",
       [](Ops& ops, float* m) {
         ops.LinearBackwardWeight(m, m, {m + 64, DType::kBF16, false},
                                  {nullptr, DType::kF32, false}, 5, 3, 2);
       }},
  };
  for (const Case& refused : cases) {
    const auto device = OpenSoftwareDevice({.schedule = GetParam(), .refused_rows = 2});
    MemoryMeter meter(device->memory());
    const auto ops = device->MakeOps({.meter = &meter, .bf16 = true});
    const Buffer matrices(meter, Pool::kActivations, 1024);
    refused.run(*ops, matrices.as<float>());
    EXPECT_EQ(device->status(),
              absl::InternalError(absl::StrCat(
                  "cuda:0: a product of matrices ", refused.text,
                  " failed: cublasLtMatmulAlgoGetHeuristic failed: CUBLAS_STATUS_NOT_SUPPORTED")));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaDeviceSchedules,
                         ::testing::Values(Schedule::kGuarded, Schedule::kLate),
                         [](const auto& info) {
                           return info.param == Schedule::kGuarded ? "Guarded" : "Late";
                         });

// A rank of a job with such heads does not begin (worker/train); whoever comes by another way ends
// no process.
TEST(CudaDevice, HeadsThatThereAreNoKernelsForAreAnError) {
  for (const bool backward : {false, true}) {
    const auto device = OpenSoftwareDevice();
    EXPECT_EQ(device->most_head_channels(), 256);
    MemoryMeter meter(device->memory());
    const auto ops = device->MakeOps({.meter = &meter, .bf16 = true});
    const AttentionShape shape{
        .batch = 1, .tokens = 1, .heads = 1, .kv_heads = 1, .head_size = 257};
    const Buffer qkv(meter, Pool::kActivations, 4 * 3 * 257);
    const Buffer out(meter, Pool::kActivations, 4 * 257), lse(meter, Pool::kActivations, 4);
    if (backward) {
      ops->AttentionBackward(out.as<float>(), qkv.as<float>(), out.as<float>(), lse.as<float>(),
                             qkv.as<float>(), shape);
    } else {
      ops->AttentionForward(qkv.as<float>(), out.as<float>(), lse.as<float>(), shape);
    }
    EXPECT_EQ(device->status(),
              absl::InternalError("cuda:0: attention: heads have 257 channels, and there are "
                                  "kernels for up to 256"));
  }
}

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

TEST(CudaDevice, AJobThatRanOutOfMemoryLeavesTheDeviceToTheNext) {
  const auto device = OpenSoftwareDevice({.memory_bytes = 8 << 20});
  {
    MemoryMeter meter(device->memory());
    const Buffer large(meter, Pool::kActivations, 9 << 20);
    EXPECT_FALSE(device->status().ok());
  }
  device->Reserve(4 << 20);
  EXPECT_TRUE(device->Synchronize().ok());
  MemoryMeter meter(device->memory());
  const Buffer fits(meter, Pool::kParams, 4 << 20);
  EXPECT_NE(fits.data(), nullptr);
  EXPECT_TRUE(device->Synchronize().ok());
}

TEST(CudaDevice, WhatElseFailedStaysWithIt) {
  const auto device = OpenSoftwareDevice({.failing_call = "cudaMemsetAsync"});
  MemoryMeter meter(device->memory());
  const Buffer first(meter, Pool::kParams, 1);
  EXPECT_TRUE(absl::IsInternal(device->status()));
  device->Reserve(4 << 20);
  EXPECT_TRUE(absl::IsInternal(device->status()));
}

// Every call of the driver is checked: whichever fails, the error names it and where it was made,
// and nothing is left behind (F36).
TEST(CudaDevice, EveryCallThatFailsIsNamedAndLeavesNothing) {
  for (const char* const call :
       {"cudaMalloc", "cudaMallocHost", "cudaStreamCreate", "cudaEventCreate", "cudaEventRecord",
        "cudaEventQuery", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaMemGetInfo", "cudaFree",
        "cudaStreamWaitEvent"}) {
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
            const std::shared_ptr<DeviceMark> mark = (*device)->Mark();
            while (!mark->passed()) std::this_thread::yield();
            (*device)->CopyOut(host.data(), buffer.data(), 100);
            (*device)->Fetch(host.data(), buffer.data(), 100).IgnoreError();
            (*device)->Deliver(buffer.data(), host.data(), 100).IgnoreError();
            std::byte* const locked = (*device)->locked_memory()->Take(Pool::kOptimizer, 100);
            (*device)->Lock(host.data(), 100);
            const std::unique_ptr<DeviceFence> fence = (*device)->MakeFence();
            (*device)->Copy(Lane::kIn, buffer.data(), host.data(), 100);
            (*device)->Record(Lane::kIn, *fence);
            (*device)->Await(Lane::kOut, *fence);
            (*device)->Copy(Lane::kOut, locked, buffer.data(), 100);
            (*device)->Synchronize().IgnoreError();
            (*device)->Unlock(host.data());
            (*device)->locked_memory()->Give(locked);
            const Buffer second(meter, Pool::kParams, 40 << 20);
            const Buffer third(meter, Pool::kParams, 40 << 20);
          }
          // Gives back what the buffers were in.
          EXPECT_GT((*device)->free_bytes(), 0);
          (*device)->Reserve(100 << 20);
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

// F34: whoever waits for a device that hangs, in whatever way, learns it in time, and from then on
// the device is a failed one.
TEST_P(CudaDeviceSchedules, ADeviceThatHangsIsFoundByEveryWaitAndStaysBad) {
  const auto limit = absl::Milliseconds(20);
  std::vector<std::byte> host(100);
  struct Case {
    const char* name;
    std::function<void(CudaDevice&, std::byte*)> wait;
  };
  const Case cases[] = {
      {"Synchronize", [](CudaDevice& device, std::byte*) { device.Synchronize().IgnoreError(); }},
      {"a mark",
       [](CudaDevice& device, std::byte*) {
         const std::shared_ptr<DeviceMark> mark = device.Mark();
         while (!mark->passed()) std::this_thread::yield();
       }},
      {"CopyIn",
       [&](CudaDevice& device, std::byte* there) {
         // As often as there are pieces to copy through, and once more.
         for (int i = 0; i < 3; ++i) device.CopyIn(there, host.data(), 100);
       }},
      {"CopyOut",
       [&](CudaDevice& device, std::byte* there) { device.CopyOut(host.data(), there, 100); }},
      {"Fetch", [&](CudaDevice& device,
                    std::byte* there) { device.Fetch(host.data(), there, 100).IgnoreError(); }},
      {"Deliver", [&](CudaDevice& device,
                      std::byte* there) { device.Deliver(there, host.data(), 100).IgnoreError(); }},
      // What is not used any more goes back for what is larger.
      {"Reserve", [](CudaDevice& device, std::byte*) { device.Reserve(100 << 20); }},
  };
  for (const Case& waits : cases) {
    const auto holdings = std::make_shared<SoftwareHoldings>();
    {
      const auto device = OpenSoftwareDevice({.schedule = GetParam(), .holdings = holdings}, limit);
      MemoryMeter meter(device->memory());
      const Buffer small(meter, Pool::kParams, 100);
      { const Buffer large(meter, Pool::kParams, 40 << 20); }
      device->Lock(host.data(), 100);
      ASSERT_TRUE(device->Synchronize().ok());
      holdings->hangs = true;
      waits.wait(*device, small.data());
      EXPECT_EQ(device->status(),
                absl::DeadlineExceededError("cuda:0: the device hangs: what was enqueued is not "
                                            "done after 20ms"))
          << waits.name;
      device->Reserve(1);
      EXPECT_TRUE(absl::IsDeadlineExceeded(device->Synchronize())) << waits.name;
      // What the driver would wait for ever with stays as it is.
      device->Unlock(host.data());
      EXPECT_EQ(holdings->registered_bytes, 100) << waits.name;
      holdings->registered_bytes = 0;
    }
    EXPECT_TRUE(holdings->empty()) << waits.name;
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
