#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "worker/data/mixture.h"
#include "worker/data/validation_split.h"

namespace sherd {
namespace {

// "10:7,20:2": windows and weight of each source.
std::vector<MixedSource> SourcesFrom(const std::string& spelt) {
  std::istringstream fields(spelt);
  std::vector<MixedSource> sources;
  for (std::string one; std::getline(fields, one, ',');) {
    const size_t colon = one.find(':');
    sources.push_back({std::stoll(one.substr(0, colon)), std::stoll(one.substr(colon + 1))});
  }
  return sources;
}

void CheckMixture(std::istringstream& fields, const std::string& line) {
  uint64_t seed;
  std::string spelt;
  int64_t sample;
  MixedWindow want;
  ASSERT_TRUE(fields >> seed >> spelt >> sample >> want.source >> want.window);
  const auto mixture = Mixture::Make(SourcesFrom(spelt), seed);
  ASSERT_TRUE(mixture.ok()) << mixture.status();
  EXPECT_EQ(mixture->Window(sample), want) << line;
}

void CheckSplit(std::istringstream& fields, const std::string& line) {
  int64_t windows;
  double fraction;
  uint64_t seed;
  int64_t index;
  int64_t training;
  int64_t validation;
  ASSERT_TRUE(fields >> windows >> fraction >> seed >> index >> training >> validation);
  const auto split = ValidationSplit::Make(windows, fraction, seed);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->TrainingWindow(index), training) << line;
  if (validation < 0) {
    EXPECT_GE(index, split->validation()) << line;
  } else {
    EXPECT_EQ(split->ValidationWindow(index), validation) << line;
  }
}

// A version in Python, which follows the definitions word by word, agrees.
TEST(DataOrder, MatchesTheIndependentImplementation) {
  std::ifstream file(std::string(SHERD_GOLDEN_DIR) + "/data_order.txt");
  int mixtures = 0;
  int splits = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string kind;
    fields >> kind;
    if (kind == "mixture") {
      CheckMixture(fields, line);
      ++mixtures;
    } else if (kind == "split") {
      CheckSplit(fields, line);
      ++splits;
    }
  }
  EXPECT_EQ(mixtures, 180);
  EXPECT_EQ(splits, 169);
}

}  // namespace
}  // namespace sherd
