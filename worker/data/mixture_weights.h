#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sherd {

// Whole numbers in the proportion of `weights`, which are finite and above 0, for Mixture: exactly
// in it where at most six decimals make all of them whole and their order repeats soon enough; else
// each rounded to parts of 2^19 of their sum, and at least one.
std::vector<int64_t> WholeWeights(absl::Span<const double> weights);

}  // namespace sherd
