#pragma once

#include <array>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "worker/agent/agent_state.h"

namespace sherd {

// The agent's own series; those of a job come and go with its trainer. Thread-safe.
class AgentMetrics {
 public:
  explicit AgentMetrics(prometheus::Registry& registry);

  void Connected();
  void Disconnected();
  void ReportDropped() { dropped_.Increment(); }
  void State(AgentState::Phase phase);

 private:
  prometheus::Gauge& connected_;
  prometheus::Counter& sessions_;
  prometheus::Counter& dropped_;
  std::array<prometheus::Gauge*, 4> phases_;  // by phase
};

}  // namespace sherd
