#include "worker/agent/agent_metrics.h"

#include <string>

namespace sherd {

AgentMetrics::AgentMetrics(prometheus::Registry& registry)
    : connected_(prometheus::BuildGauge()
                     .Name("sherd_worker_session_connected")
                     .Help("1 while the coordinator has this worker's session.")
                     .Register(registry)
                     .Add({})),
      sessions_(
          prometheus::BuildCounter()
              .Name("sherd_worker_session_streams_total")
              .Help("Streams that the coordinator welcomed; all but the first are reconnects.")
              .Register(registry)
              .Add({})),
      dropped_(prometheus::BuildCounter()
                   .Name("sherd_worker_reports_dropped_total")
                   .Help("Step and log lines dropped because the coordinator was away for long.")
                   .Register(registry)
                   .Add({})) {
  auto& family = prometheus::BuildGauge()
                     .Name("sherd_worker_state")
                     .Help("1 for the state that the worker is in.")
                     .Register(registry);
  for (size_t i = 0; i < phases_.size(); ++i) {
    phases_[i] = &family.Add({{"state", std::string(NameOf(static_cast<AgentState::Phase>(i)))}});
  }
  State(AgentState::Phase::kIdle);
}

void AgentMetrics::Connected() {
  connected_.Set(1);
  sessions_.Increment();
}

void AgentMetrics::Disconnected() { connected_.Set(0); }

void AgentMetrics::State(AgentState::Phase phase) {
  for (size_t i = 0; i < phases_.size(); ++i) {
    phases_[i]->Set(static_cast<AgentState::Phase>(i) == phase ? 1 : 0);
  }
}

}  // namespace sherd
