#include <gtest/gtest.h>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
constexpr int64_t kSizes[] = {0, 1, 3, 16, 47, 70'003};

AdamWParams Params(int64_t step) {
  return {.lr = 3e-3,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .step = step,
          .grad_scale = 0.5f};
}

TEST(AdamW, FollowsTheReferenceOverSteps) {
  const auto ops = MakeTestedOps(2);
  for (const int64_t count : kSizes) {
    for (const DType grad_dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(count));
      Floats master = draw.Normal(count), m(master.size()), v(master.size());
      const AdamWState state{master.data(), m.data(), v.data()};
      Doubles master_exact = ToDoubles(master), m_exact(master.size()), v_exact(master.size());
      for (int64_t step = 1; step <= 4; ++step) {
        const Stored grad(draw.Normal(count, 0.01f), grad_dtype);
        ops->AdamW({master.data(), DType::kF32, false}, state, state, grad.data(), grad_dtype,
                   Params(step), count);
        reference::AdamW(master_exact, m_exact, v_exact, grad.values(), Params(step));
      }
      // A dozen roundings a step.
      ExpectClose(master, master_exact, 1e-6, "master");
      ExpectClose(m, m_exact, 1e-6, "m");
      ExpectClose(v, v_exact, 1e-6, "v");
    }
  }
}

TEST(AdamW, WritesTheMasterRoundedAsTheParameter) {
  const auto ops = MakeTestedOps(2);
  for (const int64_t count : kSizes) {
    Draw draw(static_cast<uint32_t>(count));
    Floats master = draw.Normal(count), m(master.size()), v(master.size());
    const AdamWState state{master.data(), m.data(), v.data()};
    const Stored grad(draw.Normal(count), DType::kBF16);
    Stored param = Stored::Unset(count, DType::kBF16);
    ops->AdamW(param.grad(false), state, state, grad.data(), DType::kBF16, Params(1), count);
    EXPECT_EQ(param, Stored(master, DType::kBF16));
  }
}

TEST(AdamW, DoesNotMoveWithoutGradientOrDecay) {
  const auto ops = MakeTestedOps(1);
  Floats master = Draw(1).Normal(37), m(37), v(37);
  const AdamWState state{master.data(), m.data(), v.data()};
  const Floats before = master, grad(37);
  AdamWParams params = Params(1);
  params.weight_decay = 0;
  ops->AdamW({master.data(), DType::kF32, false}, state, state, grad.data(), DType::kF32, params,
             37);
  EXPECT_EQ(master, before);
}

// Bits of an update in place, for parameters of both types; what it read stays as it was.
TEST(AdamW, OutOfPlaceGivesTheBitsOfInPlace) {
  const auto ops = MakeTestedOps(2);
  for (const int64_t count : kSizes) {
    for (const DType param_dtype : kTypes) {
      for (const DType grad_dtype : kTypes) {
        Draw draw(static_cast<uint32_t>(count));
        Floats master = draw.Normal(count), m = draw.Normal(count), v(master.size(), 0.5f);
        const Floats old_master = master, old_m = m, old_v = v;
        Floats new_master(master.size()), new_m(master.size()), new_v(master.size());
        const AdamWState from{master.data(), m.data(), v.data()};
        const AdamWState to{new_master.data(), new_m.data(), new_v.data()};
        const Stored grad(draw.Normal(count), grad_dtype);
        Stored param = Stored::Unset(count, param_dtype);
        ops->AdamW(param.grad(false), from, to, grad.data(), grad_dtype, Params(2), count);
        EXPECT_EQ(master, old_master);
        EXPECT_EQ(m, old_m);
        EXPECT_EQ(v, old_v);
        EXPECT_EQ(param, Stored(new_master, param_dtype));
        Stored again = Stored::Unset(count, param_dtype);
        ops->AdamW(again.grad(false), from, from, grad.data(), grad_dtype, Params(2), count);
        EXPECT_EQ(master, new_master);
        EXPECT_EQ(m, new_m);
        EXPECT_EQ(v, new_v);
        EXPECT_EQ(param, again);
      }
    }
  }
}

}  // namespace
}  // namespace sherd
