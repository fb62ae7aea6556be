// The fixture of the suite that all implementations of Communicator pass.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>

#include "communicator_kinds.h"

namespace sherd {

inline constexpr std::array kWorlds = {1, 2, 3, 4, 5, 6, 7, 8};

class Conformance : public testing::TestWithParam<CommunicatorKind> {
 protected:
  // Calls `rank_main` for each rank of a new group; it ends with the group intact.
  void InGroup(int size, int64_t arena_bytes,
               const std::function<void(Communicator& comm)>& rank_main) {
    SCOPED_TRACE(testing::Message() << "world " << size);
    auto members = GetParam().form(size, {.arena_bytes = arena_bytes});
    RunRanks(size, [&](int rank) { rank_main(*members[static_cast<size_t>(rank)]); });
  }
};

}  // namespace sherd
