// Attention as `compute: bf16` has it, on tensor cores where there is a kernel for the heads.
#include <gtest/gtest.h>

#include <memory>

#include "tests/cuda/copied_ops.h"
#include "tests/cuda/tested_devices.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr AttentionShape kShapes[] = {{2, 7, 2, 1, 64},
                                      {1, 65, 1, 1, 128},
                                      {1, 200, 4, 2, 64},
                                      {1, 130, 2, 1, 128},
                                      {1, 70, 3, 3, 33}};

class Bf16Attention : public ::testing::TestWithParam<TestedDevice> {};

TEST_P(Bf16Attention, ForwardIsTheReference) {
  const std::unique_ptr<Ops> ops = MakeCopiedOps(GetParam().open(), /*bf16=*/true);
  for (const AttentionShape& shape : kShapes) {
    const int64_t rows = shape.batch * shape.tokens;
    Floats qkv = Draw(1).Normal(rows * shape.qkv_channels());
    for (float& value : qkv) value = ToFloat(ToBF16(value));
    Floats out(static_cast<size_t>(rows * shape.heads * shape.head_size));
    Floats lse(static_cast<size_t>(rows * shape.heads));
    ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
    const auto expected = reference::AttentionForward(ToDoubles(qkv), shape);
    // Every weight is rounded to bf16 once, by at most 2^-9 of itself, and their sum is 1: off by
    // 2^-9 of the largest value, which a mean of values may be much smaller than.
    ExpectClose(out, expected.out, 1.0 / 512 + kFloatTolerance, "out", 4);
    ExpectClose(lse, expected.lse, kFloatTolerance, "lse");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bf16Attention, ::testing::ValuesIn(TestedDevices()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sherd
