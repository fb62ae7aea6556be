#pragma once

#include <vector>

#include "tests/coordinator/scenario.h"

namespace sherd {

// A job of three ranks on w0, w1, w2 that has completed step 17; `spares` more workers are idle.
inline JobId RunThreeRanks(Scenario& scenario, int spares = 0, int64_t min_workers = 1) {
  scenario.JoinWorkers(3 + spares);
  const JobId id = scenario.Run({.min_workers = min_workers, .max_workers = 3});
  scenario.Do(Progressed(scenario.job(id), 17));
  return id;
}

inline std::vector<v1::JobEvent> OfKind(const std::vector<v1::JobEvent>& feed,
                                        v1::JobEvent::EventCase kind) {
  std::vector<v1::JobEvent> found;
  for (const v1::JobEvent& entry : feed) {
    if (entry.event_case() == kind) found.push_back(entry);
  }
  return found;
}

}  // namespace sherd
