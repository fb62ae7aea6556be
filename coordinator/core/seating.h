#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/state.h"

namespace sherd {

// Idle workers that can share memory.
using IdleDomain = std::vector<const WorkerState*>;

// Seats a world of `world` ranks, by rank, on the idle workers of `domains`, in groups of `unit`
// adjacent ranks that are each in one domain; the domains have room for so many, and `world` is a
// multiple of `unit`. Survivors of the ranks `before` keep their ranks if the world is as large as
// it was; else the groups that are left stay in their order. Within a group everybody keeps the
// place, so that most find what they hold. Where there is a choice, the groups that lost fewest
// members stay, and the first domain is filled first.
std::vector<WorkerId> SeatAgain(const std::vector<RankState>& before,
                                const std::vector<const IdleDomain*>& domains, int64_t world,
                                int64_t unit);

}  // namespace sherd
