#pragma once

#include "absl/strings/string_view.h"

namespace sherd {

// FLOP/s of dense bf16 products at most, by what a GPU calls its model ("NVIDIA H100 PCIe"), as its
// maker states it; 0 when it is not known.
double KnownPeakFlops(absl::string_view model);

}  // namespace sherd
