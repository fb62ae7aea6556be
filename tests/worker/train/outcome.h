#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/worker/train/local_world.h"

namespace sherd::testing {

// The weights that a user means by the directory, by tensor name; fails the test when they cannot
// be read.
std::map<std::string, std::vector<float>> ReadWeights(const std::string& directory);

// Every rank ended well, and told of memory and wire what was predicted, to the byte.
void ExpectExactLedgers(const std::vector<RankRecord>& ranks, const std::string& what);

// What two runs may have to agree on, bit for bit.
struct RunOutcome {
  // Loss and gradient norm of every step, then held-out losses.
  std::vector<double> curve;
  std::map<std::string, std::vector<float>> weights;
};
// Every rank ended well, or the test fails.
RunOutcome OutcomeOf(const std::vector<RankRecord>& ranks);
void ExpectSameBits(const RunOutcome& ours, const RunOutcome& theirs, const std::string& what);

}  // namespace sherd::testing
