#pragma once

#include <cstdint>
#include <vector>

#include "plan/element_range.h"
#include "plan/parameters.h"

namespace sherd {

// What the members of a tensor-parallel group owe each other of a unit, all as elements of its flat
// buffer, in order. `owned` is what the rank updates of the unit.

// Of `owned`, gradients of which each of `members` adjacent members has computed a share, and which
// are of use: frozen parameters' are not.
std::vector<ElementRange> SharedGradients(const Unit& unit, const ElementRange& owned, int members);

// Of `range`, what member `tensor_index` answers for: of elements that several hold, the first
// does.
std::vector<ElementRange> FirstHeld(const Unit& unit, const ElementRange& range, int tensor_index);

// Of `ranges`, what is not frozen.
std::vector<ElementRange> TrainedIn(const Unit& unit, const std::vector<ElementRange>& ranges);

int64_t ElementsIn(const std::vector<ElementRange>& ranges);

}  // namespace sherd
