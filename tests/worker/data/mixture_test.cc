#include "worker/data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace sherd {
namespace {

using testing::HasSubstr;

Mixture Make(const std::vector<MixedSource>& sources, uint64_t seed = 1) {
  auto mixture = Mixture::Make(sources, seed);
  EXPECT_TRUE(mixture.ok()) << mixture.status();
  return *std::move(mixture);
}

TEST(Mixture, GivesEverySourceItsPartOfEveryPrefix) {
  const std::vector<std::vector<int64_t>> all_weights = {
      {1},
      {1, 1},
      {7, 2, 1},
      {1, 999},
      {3, 3, 3},
      {500, 300, 199, 1},
      {1, 2, 4, 8, 16, 32, 64},
      {97, 89, 83, 79, 73, 71, 67, 61, 59, 53, 47, 43,
       41, 37, 31, 29, 23, 19, 17, 13, 11, 7,  5,  3}};
  for (const std::vector<int64_t>& weights : all_weights) {
    std::vector<MixedSource> sources;
    for (const int64_t weight : weights) sources.push_back({10, weight});
    const Mixture mixture = Make(sources);
    const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
    std::vector<int64_t> counts(weights.size(), 0);
    for (int64_t n = 1; n <= 3 * sum; ++n) {
      ++counts[static_cast<size_t>(mixture.Window(n - 1).source)];
      for (size_t s = 0; s < weights.size(); ++s) {
        // |count − n·weight/sum| < 1, in whole numbers.
        ASSERT_LT(std::abs(counts[s] * sum - n * weights[s]), sum) << "source " << s << " of " << n;
      }
    }
  }
}

// F48: nothing is skipped or repeated within a pass of a source.
TEST(Mixture, EachSourceVisitsItsOwnWindowsInPasses) {
  const std::vector<MixedSource> sources = {{30, 5}, {7, 2}, {100, 1}};
  const Mixture mixture = Make(sources, 11);
  std::map<int64_t, std::vector<int64_t>> visited;
  for (int64_t i = 0; i < 1600; ++i) {
    const MixedWindow window = mixture.Window(i);
    visited[window.source].push_back(window.window);
  }
  for (int64_t s = 0; s < 3; ++s) {
    const auto windows = static_cast<size_t>(sources[static_cast<size_t>(s)].windows);
    ASSERT_GE(visited[s].size(), 2 * windows);
    for (const size_t pass : {0, 1}) {
      const auto begin = visited[s].begin() + static_cast<std::ptrdiff_t>(pass * windows);
      const std::set<int64_t> distinct(begin, begin + static_cast<std::ptrdiff_t>(windows));
      EXPECT_EQ(distinct.size(), windows);
      EXPECT_EQ(*distinct.rbegin(), static_cast<int64_t>(windows) - 1);
    }
  }
  EXPECT_NE(visited[0], visited[1]);
}

TEST(Mixture, OfOneSourceIsThePlainOrder) {
  const Mixture mixture = Make({{50, 3}}, 7);
  const SampleOrder order(50, 7);
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(mixture.Window(i), (MixedWindow{0, order.Window(i)}));
}

TEST(Mixture, DependsOnSeedAndProportionsAlone) {
  const Mixture mixture = Make({{40, 2}, {60, 6}}, 3);
  const Mixture same = Make({{40, 100}, {60, 300}}, 3);
  const Mixture other = Make({{40, 2}, {60, 6}}, 4);
  EXPECT_EQ(mixture.period(), 4);
  int equal = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(mixture.Window(i), same.Window(i));
    EXPECT_EQ(mixture.Window(i).source, other.Window(i).source);
    equal += mixture.Window(i) == other.Window(i) ? 1 : 0;
  }
  EXPECT_LT(equal, 100);
}

TEST(Mixture, TakesTheLargestIndices) {
  const Mixture mixture = Make({{1000, 1}, {int64_t{1} << 40, (1 << 20) - 1}});
  EXPECT_EQ(mixture.period(), 1 << 20);
  const MixedWindow window = mixture.Window(int64_t{1} << 61);
  EXPECT_LT(window.window, int64_t{1} << 40);
  EXPECT_GE(window.window, 0);
}

TEST(Mixture, SaysWhatIsWrong) {
  const auto error = [](const std::vector<MixedSource>& sources) {
    return std::string(Mixture::Make(sources, 1).status().message());
  };
  EXPECT_THAT(error({}), HasSubstr("not 0"));
  EXPECT_THAT(error({{5, 1}, {0, 1}}), HasSubstr("source 1 of the mixture has 0 windows"));
  EXPECT_THAT(error({{5, 0}}), HasSubstr("a weight of 0"));
  EXPECT_THAT(error({{5, -3}}), HasSubstr("a weight of -3"));
  EXPECT_THAT(error({{5, 1}, {5, 1 << 20}}), HasSubstr("smaller numbers"));
  EXPECT_THAT(error({{5, INT64_MAX}, {5, INT64_MAX - 1}}), HasSubstr("smaller numbers"));
}

}  // namespace
}  // namespace sherd
