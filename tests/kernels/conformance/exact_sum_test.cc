#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

ExactSum SquaresOf(Ops& ops, const Floats& values) {
  ExactSum sum;
  ops.AddSquares(values.data(), DType::kF32, static_cast<int64_t>(values.size()), sum);
  return sum;
}

// Any finite floats, denormals included: random bits.
Floats AnyFinite(uint32_t seed, int64_t count) {
  std::mt19937 generator(seed);
  Floats values;
  while (static_cast<int64_t>(values.size()) < count) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

// Schoolbook arithmetic on single bits: the square's bits are added one at a time.
ExactSum BitByBit(const Floats& values) {
  ExactSum sum;
  for (const float value : values) {
    int exponent = 0;
    const double significand = std::ldexp(std::frexp(std::abs(value), &exponent), 24);
    const auto whole = static_cast<uint64_t>(significand);
    const uint64_t square = whole * whole;
    const int shift = 2 * (exponent - 24) - ExactSum::kLowestExponent;
    for (int bit = 0; bit < 64; ++bit) {
      if ((square >> bit & 1) == 0) continue;
      for (int at = shift + bit;; ++at) {
        uint64_t& limb = sum.limbs[static_cast<size_t>(at / 64)];
        limb ^= uint64_t{1} << (at % 64);
        if ((limb >> (at % 64) & 1) != 0) break;  // no carry
      }
    }
  }
  return sum;
}

TEST(AddSquares, IsExactForAnyFloats) {
  const auto ops = MakeTestedOps(1);
  for (const int64_t count : {0, 1, 2, 3, 5, 17, 1000}) {
    const Floats values = AnyFinite(static_cast<uint32_t>(count), count);
    EXPECT_EQ(SquaresOf(*ops, values).limbs, BitByBit(values).limbs) << count;
  }
}

// What is far below a block's largest square takes other paths than what is near.
TEST(AddSquares, IsExactWhateverTheSpread) {
  const auto ops = MakeTestedOps(1);
  const float odd = std::nextafter(1.0f, 2.0f);
  for (const float largest : {1.0f, 3e38f, 1e-30f, 1e-41f}) {
    for (int spread = 0; spread <= 149; ++spread) {
      Floats values(70, std::ldexp(odd * largest, -spread));
      values[33] = largest;
      values[0] = values[69] = -std::ldexp(largest, -spread / 2) * odd;
      ASSERT_EQ(SquaresOf(*ops, values).limbs, BitByBit(values).limbs) << largest << " " << spread;
    }
  }
  // Whole blocks with all the squares at their limit, and most of a second part.
  for (const float value : {odd, std::nextafter(2.0f, 0.0f), 1.5f}) {
    Floats values(2048 + 5, value);
    EXPECT_EQ(SquaresOf(*ops, values).limbs, BitByBit(values).limbs);
    for (size_t i = 1; i < values.size(); ++i) values[i] *= 0x1p-21f;
    EXPECT_EQ(SquaresOf(*ops, values).limbs, BitByBit(values).limbs);
    for (size_t i = 1; i < values.size(); ++i) values[i] *= 0x1p-22f;
    EXPECT_EQ(SquaresOf(*ops, values).limbs, BitByBit(values).limbs);
  }
  const Floats normal = Draw(5).Normal(20'001, 1e-3f);
  EXPECT_EQ(SquaresOf(*ops, normal).limbs, BitByBit(normal).limbs);
}

TEST(AddSquares, IsExactAcrossManyBlocksAndFullBins) {
  const auto ops = MakeTestedOps(2);
  // The largest significand in every place fills a bin to its limit.
  const int64_t count = (1 << 18) + 3;
  const float value = std::nextafter(2.0f, 0.0f);
  const ExactSum sum = SquaresOf(*ops, Floats(static_cast<size_t>(count), value));
  const unsigned __int128 square = uint64_t{0xffffff} * uint64_t{0xffffff};
  const unsigned __int128 total = square * static_cast<unsigned __int128>(count);
  // value = 0xffffff · 2^-23
  const int shift = -46 - ExactSum::kLowestExponent;
  EXPECT_EQ(sum.limbs[static_cast<size_t>(shift / 64)],
            static_cast<uint64_t>(total << (shift % 64)));
  EXPECT_EQ(sum.limbs[static_cast<size_t>(shift / 64 + 1)],
            static_cast<uint64_t>(total >> (64 - shift % 64)));
}

// F2, F12: the norm depends neither on order, nor on how shards are cut, nor on threads.
TEST(AddSquares, IsFreeOfOrderCutsAndThreads) {
  Floats values = AnyFinite(7, 200'003);
  const auto one = MakeTestedOps(1);
  const ExactSum whole = SquaresOf(*one, values);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(SquaresOf(*MakeTestedOps(threads), values).limbs, whole.limbs);
  }
  for (const int64_t cut : {1, 777, 65'536, 131'071}) {
    ExactSum parts;
    one->AddSquares(values.data() + cut, DType::kF32, 200'003 - cut, parts);
    ExactSum head;
    one->AddSquares(values.data(), DType::kF32, cut, head);
    parts.Add(head);
    EXPECT_EQ(parts.limbs, whole.limbs) << cut;
  }
  std::shuffle(values.begin(), values.end(), std::mt19937(1));
  EXPECT_EQ(SquaresOf(*one, values).limbs, whole.limbs);
}

TEST(AddSquares, TakesHalfPrecisionValuesAsTheyAre) {
  const Floats values = AnyFinite(9, 5001);
  const Stored halves(values, DType::kBF16);
  Floats widened;
  for (const double value : halves.values()) widened.push_back(static_cast<float>(value));
  const auto ops = MakeTestedOps(2);
  ExactSum sum;
  ops->AddSquares(halves.data(), DType::kBF16, 5001, sum);
  const ExactSum expected = SquaresOf(*ops, widened);
  EXPECT_EQ(sum.limbs, expected.limbs);
  EXPECT_EQ(sum.nonfinite, expected.nonfinite);
}

// F15
TEST(AddSquares, CountsWhatIsNotFinite) {
  const auto ops = MakeTestedOps(2);
  Floats values(100'000, 1.0f);
  values[0] = std::numeric_limits<float>::infinity();
  values[70'000] = -std::numeric_limits<float>::infinity();
  values[70'001] = std::numeric_limits<float>::quiet_NaN();
  values[99'999] = -std::numeric_limits<float>::quiet_NaN();
  ExactSum sum = SquaresOf(*ops, values);
  EXPECT_EQ(sum.nonfinite, 4u);
  EXPECT_TRUE(std::isnan(sum.Value()));
  sum.nonfinite = 0;
  EXPECT_EQ(sum.Value(), 99'996);
}

TEST(ExactSum, ValueIsExactAtTheEndsOfTheRange) {
  const auto ops = MakeTestedOps(1);
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(SquaresOf(*ops, {}).Value(), 0);
  EXPECT_EQ(SquaresOf(*ops, {0.0f, -0.0f}).Value(), 0);
  EXPECT_EQ(SquaresOf(*ops, {tiny}).Value(), std::ldexp(1.0, -298));
  EXPECT_EQ(SquaresOf(*ops, {-tiny, tiny, tiny}).Value(), std::ldexp(3.0, -298));
  EXPECT_EQ(SquaresOf(*ops, {huge}).Value(), static_cast<double>(huge) * huge);
  EXPECT_EQ(SquaresOf(*ops, {huge, huge}).Value(), 2.0 * huge * huge);
}

TEST(ExactSum, ValueRoundsToNearestEvenWithAStickyTail) {
  ExactSum sum;
  const auto bit = [&sum](int at) { sum.limbs[static_cast<size_t>(at / 64)] |= 1ull << (at % 64); };
  bit(400);
  bit(400 - 53);  // half a unit in the last place: a tie, to even
  const double even = std::ldexp(1.0, 400 + ExactSum::kLowestExponent);
  EXPECT_EQ(sum.Value(), even);
  bit(0);  // anything below decides upwards
  EXPECT_EQ(sum.Value(), std::nextafter(even, 2 * even));
}

TEST(ExactSum, ValueAgreesWithLongDouble) {
  const auto ops = MakeTestedOps(1);
  const Floats values = Draw(3).Normal(1000);
  long double expected = 0;
  for (const float value : values) expected += static_cast<long double>(value) * value;
  // A long double chain of 1,000 is good to 1,000 · 2^-64.
  const double value = SquaresOf(*ops, values).Value();
  EXPECT_NEAR(value, static_cast<double>(expected), 1e-12);
}

TEST(ExactSum, AddCarriesThroughAllLimbs) {
  ExactSum ones;
  for (uint64_t& limb : ones.limbs) limb = ~uint64_t{0};
  ones.limbs.back() = 0;
  ExactSum one;
  one.limbs[0] = 1;
  one.nonfinite = 2;
  ones.Add(one);
  ExactSum expected;
  expected.limbs.back() = 1;
  EXPECT_EQ(ones.limbs, expected.limbs);
  EXPECT_EQ(ones.nonfinite, 2u);
}

}  // namespace
}  // namespace sherd
