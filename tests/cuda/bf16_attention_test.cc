// Attention as `compute: bf16` has it, on tensor cores where there is a kernel for the heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/cuda/copied_ops.h"
#include "tests/cuda/tested_devices.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr AttentionShape kShapes[] = {
    {2, 7, 2, 1, 64}, {1, 65, 1, 1, 128}, {1, 200, 4, 2, 64}, {1, 130, 2, 1, 128}};
// For whose heads there is no kernel on tensor cores.
constexpr AttentionShape kOther = {1, 70, 3, 3, 33};

double Rounded(double value) { return ToFloat(ToBF16(static_cast<float>(value))); }

// Attention in double precision with the roundings of the tensor cores' operands, and no other:
// queries, keys, values, and a weight e^score beside whole powers of two. Its gradients count a
// rounding as a factor.
class RoundedAttention {
 public:
  RoundedAttention(Doubles qkv, const AttentionShape& shape) : qkv_(std::move(qkv)), shape_(shape) {
    for (double& value : qkv_) value = Rounded(value);
  }

  Doubles Out() const {
    Doubles out(static_cast<size_t>(shape_.batch * shape_.tokens * shape_.heads * size()));
    ForEachQuery([&](int64_t b, int64_t t, int64_t h) {
      const std::vector<Weight> weights = WeightsOf(b, t, h);
      for (int64_t s = 0; s <= t; ++s) {
        for (int64_t d = 0; d < size(); ++d) {
          out[AtOut(b, t, h, d)] += weights[static_cast<size_t>(s)].used * qkv_[At(b, s, h, 2, d)];
        }
      }
    });
    return out;
  }

  // Of Σ dout · out.
  Doubles Gradient(const Doubles& dout) const {
    Doubles dqkv(qkv_.size());
    const double scale = 1 / std::sqrt(static_cast<double>(size()));
    ForEachQuery([&](int64_t b, int64_t t, int64_t h) {
      const std::vector<Weight> weights = WeightsOf(b, t, h);
      Doubles dweights(weights.size());
      double delta = 0;
      for (int64_t s = 0; s <= t; ++s) {
        for (int64_t d = 0; d < size(); ++d) {
          const double up = dout[AtOut(b, t, h, d)];
          dweights[static_cast<size_t>(s)] += up * qkv_[At(b, s, h, 2, d)];
          dqkv[At(b, s, h, 2, d)] += weights[static_cast<size_t>(s)].used * up;
        }
        delta += weights[static_cast<size_t>(s)].used * dweights[static_cast<size_t>(s)];
      }
      for (int64_t s = 0; s <= t; ++s) {
        const double dscore =
            scale * (weights[static_cast<size_t>(s)].used * dweights[static_cast<size_t>(s)] -
                     weights[static_cast<size_t>(s)].exact * delta);
        for (int64_t d = 0; d < size(); ++d) {
          dqkv[At(b, t, h, 0, d)] += dscore * qkv_[At(b, s, h, 1, d)];
          dqkv[At(b, s, h, 1, d)] += dscore * qkv_[At(b, t, h, 0, d)];
        }
      }
    });
    return dqkv;
  }

 private:
  struct Weight {
    double exact, used;
  };

  int64_t size() const { return shape_.head_size; }
  template <typename Visit>
  void ForEachQuery(const Visit& visit) const {
    for (int64_t b = 0; b < shape_.batch; ++b) {
      for (int64_t t = 0; t < shape_.tokens; ++t) {
        for (int64_t h = 0; h < shape_.heads; ++h) visit(b, t, h);
      }
    }
  }
  // Part 0 is queries, 1 keys, 2 values.
  size_t At(int64_t b, int64_t t, int64_t h, int part, int64_t d) const {
    const int64_t kv_head = h / (shape_.heads / shape_.kv_heads);
    const int64_t slot = part == 0 ? h : shape_.heads + (part - 1) * shape_.kv_heads + kv_head;
    return static_cast<size_t>((b * shape_.tokens + t) * shape_.qkv_channels() + slot * size() + d);
  }
  size_t AtOut(int64_t b, int64_t t, int64_t h, int64_t d) const {
    return static_cast<size_t>(((b * shape_.tokens + t) * shape_.heads + h) * size() + d);
  }
  std::vector<Weight> WeightsOf(int64_t b, int64_t t, int64_t h) const {
    Doubles in_twos(static_cast<size_t>(t + 1));
    for (int64_t s = 0; s <= t; ++s) {
      for (int64_t d = 0; d < size(); ++d) {
        in_twos[static_cast<size_t>(s)] += qkv_[At(b, t, h, 0, d)] * qkv_[At(b, s, h, 1, d)];
      }
      in_twos[static_cast<size_t>(s)] /= std::sqrt(static_cast<double>(size())) * std::log(2.0);
    }
    const double whole = std::ceil(*std::max_element(in_twos.begin(), in_twos.end()));
    double sum = 0;
    for (const double score : in_twos) sum += std::exp2(score - whole);
    std::vector<Weight> weights;
    for (const double score : in_twos) {
      const double weight = std::exp2(score - whole);
      weights.push_back({weight / sum, Rounded(weight) / sum});
    }
    return weights;
  }

  Doubles qkv_;
  const AttentionShape shape_;
};

Doubles DrawDoubles(uint32_t seed, int64_t elements) {
  return ToDoubles(Draw(seed).Normal(elements));
}

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The reference itself, against differences of the rounded function.
TEST(RoundedAttention, GradientsAreItsDifferences) {
  const AttentionShape shape{.batch = 1, .tokens = 6, .heads = 2, .kv_heads = 1, .head_size = 8};
  const Doubles qkv = DrawDoubles(1, 6 * shape.qkv_channels()), dout = DrawDoubles(2, 6 * 2 * 8);
  const Doubles gradient = RoundedAttention(qkv, shape).Gradient(dout);
  for (size_t i = 0; i < qkv.size(); ++i) {
    const bool value = static_cast<int64_t>(i) % shape.qkv_channels() / 8 == 3;
    // Steps of many roundings, within which these average.
    const double step = 0.25;
    Doubles moved = qkv;
    const auto at = [&](double to) {
      moved[i] = to;
      return Dot(RoundedAttention(moved, shape).Out(), dout);
    };
    const double difference =
        (at(qkv[i] + step) - at(qkv[i] - step)) / (Rounded(qkv[i] + step) - Rounded(qkv[i] - step));
    // In values the function is linear. Else each of a few outputs of up to about 10 may round by
    // 2^-9 at either end, and what is of third order in the step is smaller.
    EXPECT_NEAR(difference, gradient[i], value ? 1e-12 : 0.1) << i;
  }
}

// Root of the mean of squared errors, relative to that of what is expected.
double RelativeError(const Doubles& actual, const Doubles& expected) {
  Doubles off(actual.size());
  for (size_t i = 0; i < actual.size(); ++i) off[i] = actual[i] - expected[i];
  return std::sqrt(Dot(off, off) / Dot(expected, expected));
}

// Heads [first, first + count) of each token of qkv.
Doubles HeadsOf(const Doubles& qkv, const AttentionShape& shape, int64_t first, int64_t count) {
  Doubles heads;
  for (int64_t row = 0; row < shape.batch * shape.tokens; ++row) {
    const auto begin = qkv.begin() + row * shape.qkv_channels() + first * shape.head_size;
    heads.insert(heads.end(), begin, begin + count * shape.head_size);
  }
  return heads;
}

// A score in fp32 is off by about 1e-6, which turns the rounding of one weight in some thousands
// over, by 2^-8 of it: 1e-4 in the mean of squares. A backward that rounds otherwise than its
// forward is off by the deviation of a rounding, about 2^-9 / √3 = 1.1e-3, of each factor.
constexpr double kOneOfThousands = 3e-4;

class Bf16Attention : public ::testing::TestWithParam<TestedDevice> {
 protected:
  struct Result {
    Floats out, lse, dqkv;
  };
  Result Run(const Floats& qkv, const Floats& dout, const AttentionShape& shape) const {
    const std::unique_ptr<Ops> ops = MakeCopiedOps(GetParam().open(), /*bf16=*/true);
    Result result{Floats(dout.size()),
                  Floats(static_cast<size_t>(shape.batch * shape.tokens * shape.heads)),
                  Floats(qkv.size())};
    ops->AttentionForward(qkv.data(), result.out.data(), result.lse.data(), shape);
    ops->AttentionBackward(dout.data(), qkv.data(), result.out.data(), result.lse.data(),
                           result.dqkv.data(), shape);
    return result;
  }
};

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

// Of values that bf16 does not hold.
TEST_P(Bf16Attention, BackwardIsTheGradientOfWhatForwardComputes) {
  for (const AttentionShape& shape : kShapes) {
    const int64_t rows = shape.batch * shape.tokens;
    const Floats qkv = Draw(3).Normal(rows * shape.qkv_channels());
    const Floats dout = Draw(4).Normal(rows * shape.heads * shape.head_size);
    const Result result = Run(qkv, dout, shape);
    const RoundedAttention rounded(ToDoubles(qkv), shape);
    EXPECT_LT(RelativeError(ToDoubles(result.out), rounded.Out()), kOneOfThousands);
    const Doubles actual = ToDoubles(result.dqkv), expected = rounded.Gradient(ToDoubles(dout));
    int64_t first = 0;
    for (const int64_t heads : {shape.heads, shape.kv_heads, shape.kv_heads}) {
      EXPECT_LT(RelativeError(HeadsOf(actual, shape, first, heads),
                              HeadsOf(expected, shape, first, heads)),
                kOneOfThousands)
          << "heads from " << first << " of " << shape.tokens << " tokens";
      first += heads;
    }
  }
}

// Nothing is rounded, either way.
TEST_P(Bf16Attention, OtherHeadsAreInFp32) {
  const int64_t rows = kOther.batch * kOther.tokens;
  const Floats qkv = Draw(5).Normal(rows * kOther.qkv_channels());
  const Floats dout = Draw(6).Normal(rows * kOther.heads * kOther.head_size);
  const Result result = Run(qkv, dout, kOther);
  ExpectClose(result.out, reference::AttentionForward(ToDoubles(qkv), kOther).out, kFloatTolerance,
              "out");
  ExpectClose(result.dqkv, reference::AttentionBackward(ToDoubles(dout), ToDoubles(qkv), kOther),
              kFloatTolerance, "dqkv");
}

INSTANTIATE_TEST_SUITE_P(All, Bf16Attention, ::testing::ValuesIn(TestedDevices()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sherd
