#include "worker/data/sample_order.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace sherd {
namespace {

std::vector<int64_t> Pass(const SampleOrder& order, int64_t pass) {
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < order.windows(); ++i) {
    windows.push_back(order.Window(pass * order.windows() + i));
  }
  return windows;
}

// F48: nothing is skipped or repeated within a pass.
TEST(SampleOrder, EachPassVisitsEveryWindowOnce) {
  for (const int64_t windows : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    const SampleOrder order(windows, 11);
    for (const int64_t pass : {0, 1, 7}) {
      const std::vector<int64_t> visited = Pass(order, pass);
      const std::set<int64_t> distinct(visited.begin(), visited.end());
      ASSERT_EQ(static_cast<int64_t>(distinct.size()), windows);
      ASSERT_EQ(*distinct.begin(), 0);
      ASSERT_EQ(*distinct.rbegin(), windows - 1);
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndPass) {
  const SampleOrder order(500, 1);
  EXPECT_NE(Pass(order, 0), Pass(order, 1));
  EXPECT_NE(Pass(order, 0), Pass(SampleOrder(500, 2), 0));
}

// Neighbours in the order are far apart in the text: the mean distance of a random order is W / 3.
TEST(SampleOrder, MixesNeighbours) {
  const int64_t count = 3000;
  const std::vector<int64_t> windows = Pass(SampleOrder(count, 5), 0);
  double distance = 0;
  for (size_t i = 1; i < windows.size(); ++i) {
    distance += std::abs(static_cast<double>(windows[i] - windows[i - 1]));
  }
  EXPECT_NEAR(distance / static_cast<double>(count * count), 1.0 / 3, 0.02);
}

// The numpy version in bench/, which the comparison with PyTorch reads its data by, agrees.
TEST(SampleOrder, MatchesTheIndependentImplementation) {
  std::ifstream file(std::string(SHERD_GOLDEN_DIR) + "/pure_functions.txt");
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string kind;
    int64_t windows;
    uint64_t seed;
    int64_t sample;
    int64_t want;
    if (!(fields >> kind) || kind != "window") continue;
    ASSERT_TRUE(fields >> windows >> seed >> sample >> want);
    EXPECT_EQ(SampleOrder(windows, seed).Window(sample), want) << line;
    ++lines;
  }
  EXPECT_EQ(lines, 36);
}

}  // namespace
}  // namespace sherd
