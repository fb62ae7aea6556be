// Products of matrices through the host side: which operands go where, rounded how often.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/fold.h"
#include "tests/cuda/tested_devices.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

// The values as products in bf16 see them.
Floats Rounded(Floats values, DType operands) {
  if (operands == DType::kBF16) {
    for (float& value : values) value = ToFloat(ToBF16(value));
  }
  return values;
}

// A device with ops, and copies of a test's values on it.
class Bench {
 public:
  Bench(const TestedDevice& device, DType operands)
      : device_(device.open()),
        meter_(device_->memory()),
        ops_(device_->MakeOps({.meter = &meter_, .bf16 = operands == DType::kBF16})) {}

  Ops& ops() { return *ops_; }
  Accelerator& device() { return *device_; }
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
  GradOut PutGrad(const Stored& values, bool accumulate) {
    const ConstParam there = Put(values);
    return {const_cast<void*>(there.data), there.dtype, accumulate};
  }
  Floats Get(const float* values, int64_t elements) {
    Floats host(static_cast<size_t>(elements));
    device_->CopyOut(host.data(), values, elements * 4);
    return host;
  }
  Stored Get(const GradOut& values, int64_t elements) {
    Stored host = Stored::Unset(elements, values.dtype);
    device_->CopyOut(host.data(), values.data, elements * SizeOf(values.dtype));
    return host;
  }

 private:
  const std::unique_ptr<Accelerator> device_;
  MemoryMeter meter_;
  std::vector<Buffer> buffers_;
  const std::unique_ptr<Ops> ops_;
};

struct LinearShape {
  int64_t rows, in, out;
};
constexpr LinearShape kShapes[] = {{1, 1, 1}, {1, 3, 2}, {257, 1, 5}, {7, 33, 19}, {64, 48, 96}};

class CudaLinear : public ::testing::TestWithParam<std::tuple<TestedDevice, DType>> {
 protected:
  const DType operands_ = std::get<DType>(GetParam());
  Bench on_{std::get<TestedDevice>(GetParam()), operands_};
};

TEST_P(CudaLinear, ForwardIsTheReference) {
  for (const auto& [rows, in, out] : kShapes) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(rows + in + out));
      const Floats x = draw.Normal(rows * in);
      const Floats w = Rounded(draw.Normal(out * in), operands_);
      const Stored bias(draw.Normal(out), dtype);
      float* const y = on_.Put(Floats(static_cast<size_t>(rows * out)));
      on_.ops().LinearForward(on_.Put(x), on_.Put(Stored(w, dtype)), on_.Put(bias), y, rows, in,
                              out);
      const Doubles seen_x = ToDoubles(Rounded(x, operands_));
      const Doubles seen_w = Stored(w, dtype).values();
      ExpectClose(on_.Get(y, rows * out),
                  reference::LinearForward(seen_x, seen_w, bias.values(), rows, in, out),
                  kFloatTolerance, "y");
      on_.ops().LinearForward(on_.Put(x), on_.Put(Stored(w, dtype)), {nullptr, dtype}, y, rows, in,
                              out);
      ExpectClose(on_.Get(y, rows * out),
                  reference::LinearForward(seen_x, seen_w, {}, rows, in, out), kFloatTolerance,
                  "y without bias");
    }
  }
  EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
}

TEST_P(CudaLinear, InputGradientIsTheReferenceAndAccumulates) {
  for (const auto& [rows, in, out] : kShapes) {
    Draw draw(static_cast<uint32_t>(rows + in + out));
    const Floats dy = draw.Normal(rows * out);
    const Stored w(Rounded(draw.Normal(out * in), operands_), operands_);
    const Doubles expected = reference::LinearBackward(ToDoubles(Rounded(dy, operands_)),
                                                       Doubles(static_cast<size_t>(rows * in)),
                                                       w.values(), rows, in, out)
                                 .dx;
    float* const dx =
        on_.Put(Floats(static_cast<size_t>(rows * in), std::numeric_limits<float>::quiet_NaN()));
    on_.ops().LinearBackwardInput(on_.Put(dy), on_.Put(w), dx, rows, in, out, false);
    ExpectClose(on_.Get(dx, rows * in), expected, kFloatTolerance, "dx");

    const Floats before = draw.Normal(rows * in);
    Doubles sum = ToDoubles(before);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += expected[i];
    float* const added = on_.Put(before);
    on_.ops().LinearBackwardInput(on_.Put(dy), on_.Put(w), added, rows, in, out, true);
    ExpectClose(on_.Get(added, rows * in), sum, kFloatTolerance, "accumulated dx");
  }
  EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
}

// A library's GELU may take the hardware's tanh, which is off by up to 2^-11.
double GeluTolerance(DType operands) { return operands == DType::kF32 ? kFloatTolerance : 1e-3; }

TEST_P(CudaLinear, ForwardWithGeluIsTheReference) {
  for (const auto& [rows, in, out] : kShapes) {
    for (const bool biased : {true, false}) {
      Draw draw(static_cast<uint32_t>(rows + in + out));
      const Floats x = draw.Normal(rows * in);
      const Stored w(Rounded(draw.Normal(out * in), operands_), operands_);
      const Stored bias(draw.Normal(out), DType::kBF16);
      const ConstParam b = biased ? on_.Put(bias) : ConstParam{nullptr, DType::kF32};
      const Floats unset(static_cast<size_t>(rows * out), std::numeric_limits<float>::quiet_NaN());
      float* const pre = on_.Put(unset);
      float* const y = on_.Put(unset);
      const float* const there = on_.Put(x);
      const ConstParam weight = on_.Put(w);
      on_.ops().LinearGeluForward(there, weight, b, pre, y, /*y_wanted=*/true, rows, in, out);
      Doubles expected =
          reference::LinearForward(ToDoubles(Rounded(x, operands_)), w.values(),
                                   biased ? bias.values() : Doubles(), rows, in, out);
      const Floats sum = on_.Get(pre, rows * out);
      ExpectClose(sum, expected, kFloatTolerance, "pre");
      for (double& value : expected) value = reference::Gelu(value);
      ExpectClose(on_.Get(y, rows * out), expected, GeluTolerance(operands_), "y");
      // As it is computed again, before backward.
      float* const again = on_.Put(unset);
      on_.ops().LinearGeluForward(there, weight, b, again, y, /*y_wanted=*/false, rows, in, out);
      EXPECT_TRUE(SameBits(on_.Get(again, rows * out), sum)) << rows << " " << in << " " << out;
    }
  }
  EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
}

TEST_P(CudaLinear, InputGradientThroughGeluIsTheReference) {
  for (const auto& [rows, in, out] : kShapes) {
    Draw draw(static_cast<uint32_t>(rows + in + out));
    const Floats dy = draw.Normal(rows * out);
    const Stored w(Rounded(draw.Normal(out * in), operands_), operands_);
    const Floats pre = draw.Normal(rows * in, 2);
    Doubles expected = reference::LinearBackward(ToDoubles(Rounded(dy, operands_)),
                                                 Doubles(static_cast<size_t>(rows * in)),
                                                 w.values(), rows, in, out)
                           .dx;
    for (size_t i = 0; i < expected.size(); ++i) expected[i] *= reference::GeluDerivative(pre[i]);
    float* const dpre =
        on_.Put(Floats(static_cast<size_t>(rows * in), std::numeric_limits<float>::quiet_NaN()));
    const float* const kept = on_.Put(pre);
    on_.ops().LinearGeluBackwardInput(on_.Put(dy), on_.Put(w), kept, dpre, rows, in, out);
    ExpectClose(on_.Get(dpre, rows * in), expected, GeluTolerance(operands_), "dpre");
    EXPECT_TRUE(SameBits(on_.Get(kept, rows * in), pre));
  }
  EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
}

TEST_P(CudaLinear, WeightGradientIsTheReferenceRoundedOnceAndAccumulates) {
  for (const auto& [rows, in, out] : kShapes) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(rows + in + out));
      const Floats dy = draw.Normal(rows * out);
      const Floats x = draw.Normal(rows * in);
      // The sums of a bias take dy as it is.
      const Doubles dbias =
          reference::LinearBackward(ToDoubles(dy), ToDoubles(x),
                                    Doubles(static_cast<size_t>(out * in)), rows, in, out)
              .dbias;
      const Doubles dw = reference::LinearBackward(
                             ToDoubles(Rounded(dy, operands_)), ToDoubles(Rounded(x, operands_)),
                             Doubles(static_cast<size_t>(out * in)), rows, in, out)
                             .dw;
      const GradOut written = on_.PutGrad(Stored::Unset(out * in, dtype), false);
      const GradOut bias = on_.PutGrad(Stored::Unset(out, dtype), false);
      on_.ops().LinearBackwardWeight(on_.Put(dy), on_.Put(x), written, bias, rows, in, out);
      ExpectClose(on_.Get(written, out * in).values(), dw, ToleranceOf(dtype), "dw");
      ExpectClose(on_.Get(bias, out).values(), dbias, ToleranceOf(dtype), "dbias");

      const Stored before(draw.Normal(out * in), dtype);
      Doubles sum = before.values();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += dw[i];
      const GradOut added = on_.PutGrad(before, true);
      on_.ops().LinearBackwardWeight(on_.Put(dy), on_.Put(x), added, {nullptr, dtype, false}, rows,
                                     in, out);
      ExpectClose(on_.Get(added, out * in).values(), sum, ToleranceOf(dtype), "accumulated dw");
    }
  }
  EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
}

// Layouts put the same values at other places. What a product is computed by must not depend on it,
// and so what is less aligned than the library is told goes by way of memory that is as aligned.
TEST_P(CudaLinear, BitsDoNotDependOnAlignment) {
  constexpr LinearShape kOdd{5, 7, 9}, kOfEpilogues{5, 16, 8};
  for (const auto& [shape, dtype] :
       {std::pair(kOdd, DType::kF32), std::pair(kOdd, DType::kBF16),
        std::pair(kOfEpilogues, DType::kF32), std::pair(kOfEpilogues, DType::kBF16)}) {
    const auto& [rows, in, out] = shape;
    Draw draw(11);
    const Floats x = draw.Normal(rows * in), dy = draw.Normal(rows * out);
    const Stored w(draw.Normal(out * in), dtype), bias(draw.Normal(out), dtype);
    const Floats dx = draw.Normal(rows * in), before = draw.Normal(rows * in);
    const Stored dw(draw.Normal(out * in), dtype);
    std::vector<Floats> outputs, input_gradients, sums, gelus, through_gelus;
    std::vector<Stored> weight_gradients;
    for (const int64_t off : {0, 1}) {
      const auto place = [&](const void* values, int64_t elements, DType of) {
        std::vector<std::byte> room(static_cast<size_t>((elements + off) * SizeOf(of)));
        std::memcpy(room.data() + off * SizeOf(of), values,
                    static_cast<size_t>(elements * SizeOf(of)));
        return static_cast<std::byte*>(on_.Put(room.data(), static_cast<int64_t>(room.size()))) +
               off * SizeOf(of);
      };
      const auto floats = [&](const Floats& values) {
        return reinterpret_cast<float*>(
            place(values.data(), static_cast<int64_t>(values.size()), DType::kF32));
      };
      const auto stored = [&](const Stored& values) {
        return place(values.data(), values.elements(), values.dtype());
      };
      float* const y = floats(Floats(static_cast<size_t>(rows * out)));
      on_.ops().LinearForward(floats(x), {stored(w), dtype}, {stored(bias), dtype}, y, rows, in,
                              out);
      outputs.push_back(on_.Get(y, rows * out));
      float* const pre = floats(Floats(static_cast<size_t>(rows * out)));
      on_.ops().LinearGeluForward(floats(x), {stored(w), dtype}, {stored(bias), dtype}, pre, y,
                                  /*y_wanted=*/true, rows, in, out);
      sums.push_back(on_.Get(pre, rows * out));
      gelus.push_back(on_.Get(y, rows * out));
      float* const dpre = floats(dx);
      on_.ops().LinearGeluBackwardInput(floats(dy), {stored(w), dtype}, floats(before), dpre, rows,
                                        in, out);
      through_gelus.push_back(on_.Get(dpre, rows * in));
      float* const added = floats(dx);
      on_.ops().LinearBackwardInput(floats(dy), {stored(w), dtype}, added, rows, in, out, true);
      input_gradients.push_back(on_.Get(added, rows * in));
      const GradOut gradient{stored(dw), dtype, true};
      on_.ops().LinearBackwardWeight(floats(dy), floats(x), gradient, {nullptr, dtype, false}, rows,
                                     in, out);
      weight_gradients.push_back(on_.Get(gradient, out * in));
    }
    EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
    EXPECT_TRUE(SameBits(outputs[1], outputs[0]));
    EXPECT_TRUE(SameBits(sums[1], sums[0]));
    EXPECT_TRUE(SameBits(gelus[1], gelus[0]));
    EXPECT_TRUE(SameBits(through_gelus[1], through_gelus[0]));
    EXPECT_TRUE(SameBits(input_gradients[1], input_gradients[0]));
    EXPECT_EQ(weight_gradients[1], weight_gradients[0]);
  }
}

// As on the processor: 256 + (1 + 2^-9) is nearest to 258; rounded first, 257 goes to the even 256.
TEST_P(CudaLinear, AccumulatesBeforeRounding) {
  const GradOut dw = on_.PutGrad(Stored({256}, DType::kBF16), true);
  const GradOut dbias = on_.PutGrad(Stored({256}, DType::kBF16), true);
  on_.ops().LinearBackwardWeight(on_.Put(Floats{1, 0x1p-9f}), on_.Put(Floats{1, 1}), dw, dbias, 2,
                                 1, 1);
  EXPECT_EQ(on_.Get(dw, 1).values()[0], 258);
  EXPECT_EQ(on_.Get(dbias, 1).values()[0], 258);
}

TEST_P(CudaLinear, NoRowsMakeZeroGradientsAndTouchNothingElse) {
  const Stored w(Draw(1).Normal(6), DType::kBF16);
  on_.ops().LinearForward(nullptr, on_.Put(w), {nullptr, DType::kF32}, nullptr, 0, 2, 3);
  on_.ops().LinearBackwardInput(nullptr, on_.Put(w), nullptr, 0, 2, 3, false);
  on_.ops().LinearGeluForward(nullptr, on_.Put(w), {nullptr, DType::kF32}, nullptr, nullptr, true,
                              0, 2, 3);
  on_.ops().LinearGeluBackwardInput(nullptr, on_.Put(w), nullptr, nullptr, 0, 2, 3);
  for (const DType dtype : kTypes) {
    const GradOut dw = on_.PutGrad(Stored::Unset(6, dtype), false);
    const GradOut dbias = on_.PutGrad(Stored::Unset(3, dtype), false);
    on_.ops().LinearBackwardWeight(nullptr, nullptr, dw, dbias, 0, 2, 3);
    EXPECT_EQ(on_.Get(dw, 6).values(), Doubles(6));
    EXPECT_EQ(on_.Get(dbias, 3).values(), Doubles(3));
    const Stored before(Draw(2).Normal(6), dtype);
    const GradOut kept = on_.PutGrad(before, true);
    on_.ops().LinearBackwardWeight(nullptr, nullptr, kept, {nullptr, dtype, true}, 0, 2, 3);
    EXPECT_EQ(on_.Get(kept, 6), before);
  }
  EXPECT_TRUE(on_.device().status().ok()) << on_.device().status();
}

// Losses and sums come back to the host, added to what was there.
TEST_P(CudaLinear, WhatOpsAddForTheHostIsThereOnReturn) {
  ExactSum sum;
  on_.ops().AddSquares(on_.Put(Floats{3, 4}), DType::kF32, 2, sum);
  EXPECT_EQ(sum.Value(), 25);
  on_.ops().AddSquares(on_.Put(Floats{12}), DType::kF32, 1, sum);
  EXPECT_EQ(sum.Value(), 169);
  const int32_t target = 1;
  const auto* const targets = static_cast<const int32_t*>(on_.Put(&target, sizeof target));
  double loss = 10;
  on_.ops().CrossEntropy(on_.Put(Floats{0, 0}), targets, 1, 2, loss);
  EXPECT_NEAR(loss, 10 + std::log(2.0), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, CudaLinear,
                         ::testing::Combine(::testing::ValuesIn(TestedDevices()),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           return std::get<TestedDevice>(info.param).name +
                                  (std::get<DType>(info.param) == DType::kF32 ? "Fp32" : "Bf16");
                         });

}  // namespace
}  // namespace sherd
