#include "worker/model/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace sherd {
namespace {

Parameter Normal(const std::string& name, int64_t elements, double stddev = 0.02) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = {elements};
  parameter.elements = elements;
  parameter.slice = {{elements}, {{0, elements}}, {0, 1}};
  parameter.init = {Initializer::Kind::kNormal, stddev};
  return parameter;
}

std::vector<float> Values(const Parameter& parameter, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(parameter.elements));
  InitializeRange(parameter, seed, 0, parameter.elements, values.data());
  return values;
}

// F41: no layout of shards changes a value.
TEST(InitializeRange, DoesNotDependOnHowATensorIsCut) {
  const Parameter parameter = Normal("h.0.mlp.c_fc.weight", 1001);
  const std::vector<float> whole = Values(parameter, 7);
  std::mt19937_64 generator(1);
  for (int i = 0; i < 100; ++i) {
    std::vector<float> pieces(whole.size(), -1);
    int64_t begin = 0;
    while (begin < parameter.elements) {
      const int64_t most = parameter.elements - begin;
      const int64_t end =
          begin + std::uniform_int_distribution<int64_t>(0, std::min<int64_t>(most, 90))(generator);
      InitializeRange(parameter, 7, begin, end, pieces.data() + begin);
      begin = end;
    }
    ASSERT_EQ(pieces, whole);
  }
}

TEST(InitializeRange, DependsOnSeedAndName) {
  const std::vector<float> values = Values(Normal("wte.weight", 100), 1);
  EXPECT_NE(values, Values(Normal("wte.weight", 100), 2));
  EXPECT_NE(values, Values(Normal("wpe.weight", 100), 1));
}

TEST(InitializeRange, HasTheMomentsOfANormalDistribution) {
  const std::vector<float> values = Values(Normal("wte.weight", 200000, 0.5), 3);
  double mean = 0;
  double square = 0;
  double fourth = 0;
  for (const float value : values) {
    const double z = value / 0.5;
    mean += z;
    square += z * z;
    fourth += z * z * z * z;
  }
  const double count = static_cast<double>(values.size());
  // Five standard errors: 1, √2, √96 over √count.
  EXPECT_NEAR(mean / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(square / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96 / count));
}

TEST(InitializeRange, SetsBiasesToZeroAndNormWeightsToOne) {
  Parameter parameter = Normal("ln_f.weight", 3);
  parameter.init = {Initializer::Kind::kOnes, 0};
  EXPECT_EQ(Values(parameter, 1), std::vector<float>(3, 1.0f));
  parameter.init = {Initializer::Kind::kZeros, 0};
  EXPECT_EQ(Values(parameter, 1), std::vector<float>(3, 0.0f));
}

// The numpy version in bench/, which the comparison with PyTorch starts from, gives the same
// values.
TEST(InitializeRange, MatchesTheIndependentImplementation) {
  std::ifstream file(std::string(SHERD_GOLDEN_DIR) + "/pure_functions.txt");
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string kind;
    std::string name;
    uint64_t seed;
    int64_t begin;
    double stddev;
    if (!(fields >> kind) || kind != "normal") continue;
    ASSERT_TRUE(fields >> name >> seed >> begin >> stddev);
    const Parameter parameter = Normal(name, begin + 6, stddev);
    std::vector<float> values(6);
    InitializeRange(parameter, seed, begin, begin + 6, values.data());
    for (const float value : values) {
      float want;
      ASSERT_TRUE(fields >> want);
      // Two mathematical libraries may round the last bit differently.
      EXPECT_NEAR(value, want, 1e-7 * std::abs(want)) << line;
    }
    ++lines;
  }
  EXPECT_EQ(lines, 4);
}

}  // namespace
}  // namespace sherd
