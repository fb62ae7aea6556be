#pragma once

#include <string>
#include <vector>

#include "sherd/v1/events.pb.h"

namespace sherd {

// The pools, collectives and groups of ledgers in the order in which they are shown: the documented
// ones, then others by name, then the peak or total. Names that any of the ledgers has.
// Of the host beside devices with memory of their own; none where there are none.
std::vector<std::string> HostPoolsOf(const std::vector<v1::RankLedger>& ledgers);
std::vector<std::string> PoolsOf(const std::vector<v1::RankLedger>& ledgers);
std::vector<std::string> CollectivesOf(const std::vector<v1::RankLedger>& ledgers);
std::vector<std::string> GroupsIn(const std::vector<v1::RankLedger>& ledgers);

// Where a rank's master copies and moments are: "device" or "host".
const char* OptimizerLocation(const v1::RankLedger& ledger);

}  // namespace sherd
