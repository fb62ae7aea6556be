#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sherd/v1/events.pb.h"

namespace sherd {

// What a recovery took, in seconds, in the order in which it happens; then phases that this version
// does not know, by name.
inline std::vector<std::pair<std::string, double>> PhasesOf(const v1::EpochReport& epoch) {
  std::map<std::string, double> left(epoch.recovery_seconds().begin(),
                                     epoch.recovery_seconds().end());
  std::vector<std::pair<std::string, double>> phases;
  for (const char* phase : {"detect", "abort", "reform", "restore", "first_step"}) {
    const auto found = left.find(phase);
    if (found == left.end()) continue;
    phases.push_back(*found);
    left.erase(found);
  }
  phases.insert(phases.end(), left.begin(), left.end());
  return phases;
}

}  // namespace sherd
