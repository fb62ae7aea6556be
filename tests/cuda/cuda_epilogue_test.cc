// Which calls of the library a layer with a GELU is, and which kernels.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/cuda/software_device.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

using simt::SoftwareHoldings;

constexpr int64_t kRows = 5, kIn = 16, kOut = 24;

// What a layer of (in, out) with a GELU makes of the same values, forward, or back through the GELU
// of its input, and by which means.
struct LayerRun {
  Floats pre, y, dpre;
  std::shared_ptr<SoftwareHoldings> forward = std::make_shared<SoftwareHoldings>();
  std::shared_ptr<SoftwareHoldings> backward = std::make_shared<SoftwareHoldings>();
};

class Layer {
 public:
  Layer(const std::shared_ptr<SoftwareHoldings>& holdings, DType operands, bool epilogues)
      : device_(OpenSoftwareDevice({.holdings = holdings, .epilogues = epilogues})),
        meter_(device_->memory()),
        ops_(device_->MakeOps({.meter = &meter_, .bf16 = operands == DType::kBF16})) {}

  Ops& ops() { return *ops_; }
  void* Put(const void* values, int64_t bytes) {
    buffers_.emplace_back(meter_, Pool::kActivations, bytes);
    device_->CopyIn(buffers_.back().data(), values, bytes);
    return buffers_.back().data();
  }
  float* Put(const Floats& values) {
    return static_cast<float*>(Put(values.data(), static_cast<int64_t>(values.size()) * 4));
  }
  ConstParam Put(const Stored& values) {
    return {Put(values.data(), values.elements() * SizeOf(values.dtype())), values.dtype()};
  }
  Floats Get(const float* values, int64_t elements) {
    Floats host(static_cast<size_t>(elements));
    device_->CopyOut(host.data(), values, elements * 4);
    EXPECT_TRUE(device_->status().ok()) << device_->status();
    return host;
  }

 private:
  const std::unique_ptr<CudaDevice> device_;
  MemoryMeter meter_;
  std::vector<Buffer> buffers_;
  const std::unique_ptr<Ops> ops_;
};

LayerRun RunLayer(int64_t in, int64_t out, DType operands, bool epilogues) {
  Draw draw(7);
  const Floats x = draw.Normal(kRows * in), dy = draw.Normal(kRows * out);
  const Floats before = draw.Normal(kRows * in, 2);
  const Stored w(draw.Normal(out * in), operands), bias(draw.Normal(out), DType::kF32);
  LayerRun run;
  {
    Layer layer(run.forward, operands, epilogues);
    float* const pre = layer.Put(Floats(static_cast<size_t>(kRows * out)));
    float* const y = layer.Put(Floats(static_cast<size_t>(kRows * out)));
    layer.ops().LinearGeluForward(layer.Put(x), layer.Put(w), layer.Put(bias), pre, y,
                                  /*y_wanted=*/true, kRows, in, out);
    run.pre = layer.Get(pre, kRows * out);
    run.y = layer.Get(y, kRows * out);
  }
  Layer layer(run.backward, operands, epilogues);
  float* const dpre = layer.Put(Floats(static_cast<size_t>(kRows * in)));
  layer.ops().LinearGeluBackwardInput(layer.Put(dy), layer.Put(w), layer.Put(before), dpre, kRows,
                                      in, out);
  run.dpre = layer.Get(dpre, kRows * in);
  return run;
}

// The one kernel rounds the layer's input.
TEST(CudaEpilogue, ABiasAndAGeluAreTheProducts) {
  const LayerRun run = RunLayer(kIn, kOut, DType::kBF16, true);
  EXPECT_EQ(run.forward->products, 1);
  EXPECT_EQ(run.forward->gelus, 1);
  EXPECT_EQ(run.forward->launches, 1);
  EXPECT_EQ(run.backward->products, 1);
  EXPECT_EQ(run.backward->gelu_gradients, 1);
  EXPECT_EQ(run.backward->launches, 1);
}

TEST(CudaEpilogue, WhatTheLibraryHasNotIsComputedByKernels) {
  const LayerRun fused = RunLayer(kIn, kOut, DType::kBF16, true);
  const LayerRun apart = RunLayer(kIn, kOut, DType::kBF16, false);
  EXPECT_EQ(apart.forward->products, 1);
  EXPECT_EQ(apart.forward->gelus, 0);
  EXPECT_EQ(apart.forward->launches, 2);
  EXPECT_EQ(apart.backward->products, 1);
  EXPECT_EQ(apart.backward->gelu_gradients, 0);
  EXPECT_EQ(apart.backward->launches, 2);
  EXPECT_TRUE(SameBits(apart.pre, fused.pre));
  ExpectClose(apart.y, ToDoubles(fused.y), kFloatTolerance, "y");
  ExpectClose(apart.dpre, ToDoubles(fused.dpre), kFloatTolerance, "dpre");
}

// Of a library's GELU nothing says that it is as exact as fp32.
TEST(CudaEpilogue, GelusOfFp32AreComputedByKernels) {
  const LayerRun run = RunLayer(kIn, kOut, DType::kF32, true);
  EXPECT_EQ(run.forward->products, 1);
  EXPECT_EQ(run.forward->gelus, 0);
  EXPECT_EQ(run.forward->launches, 1);
  EXPECT_EQ(run.backward->gelu_gradients, 0);
  EXPECT_EQ(run.backward->launches, 1);
}

// The library takes rows of whole multiples of eight.
TEST(CudaEpilogue, RowsThatDoNotFitAreComputedByKernels) {
  const LayerRun run = RunLayer(kIn + 1, kOut + 4, DType::kBF16, true);
  EXPECT_EQ(run.forward->products, 1);
  EXPECT_EQ(run.forward->gelus, 0);
  EXPECT_EQ(run.backward->products, 1);
  EXPECT_EQ(run.backward->gelu_gradients, 0);
}

}  // namespace
}  // namespace sherd
