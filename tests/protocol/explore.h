#pragma once

#include <iostream>

#include "absl/strings/string_view.h"
#include "tests/protocol/model.h"

namespace sherd::protocol {

// Explores the protocol under `policy` in one scenario, and prints how large that was and what it
// found.
inline Findings Explore(absl::string_view name, const Scenario& scenario,
                        const Policy& policy = {}) {
  const ProtocolModel model(scenario, policy);
  Findings findings = Explorer<ProtocolModel, State>(model).Run();
  std::cout << name << ": " << findings.states << " states, " << findings.moves << " moves\n";
  if (!findings.violation.empty()) std::cout << findings.violation << ":\n" << findings.trace;
  return findings;
}

}  // namespace sherd::protocol
