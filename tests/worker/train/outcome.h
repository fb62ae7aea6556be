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

}  // namespace sherd::testing
