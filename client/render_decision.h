#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/render_json.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// How a job of strategy auto is laid out, and what it was chosen from (docs/auto-strategy.md).

// {"event":"decision","world":…,"chosen":{…},"keys":{…},"reason":…,"candidates":[…],"probe":{…}}.
Json DecisionJson(const v1::StrategyDecision& decision);
// Of candidates, best first: {"name":…,"parallel":{…},"micro_batch":…,"peak_bytes":…,"fits":…,
// "predicted_step_seconds":…,"measured_step_seconds":…}; null for what was not measured.
Json CandidatesJson(const std::vector<v1::Candidate>& candidates);

// What a job's file would say to have the candidate: {"parallel":{…},"train":{"micro_batch":…}}.
Json KeysJson(const v1::Candidate& candidate);
// The same as lines of a job file.
std::string KeysText(const v1::Candidate& candidate);

// A table of the first `most` candidates, a row each; what was measured only where something was.
std::string CandidatesTable(const std::vector<v1::Candidate>& candidates, size_t most);
// One sentence, the table, and the keys of the one that was chosen; without a newline at its end.
std::string DecisionText(const v1::StrategyDecision& decision);

}  // namespace sherd
