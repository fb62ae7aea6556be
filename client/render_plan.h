#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/plan_request.h"
#include "client/render_json.h"
#include "plan/ledger.h"
#include "plan/plan_report.h"
#include "plan/recommendation.h"
#include "plan/world_layout.h"

namespace sherd {

// Sizes of a job's plan are in binary units, as its ledgers are; those of theory in decimal ones,
// as papers have them. What is held against a limit is always in binary units, as capacities are.

// "112.0 GB".
std::string DecimalBytes(int64_t bytes);
// "1.23 s", "45.6 ms", "7.8 us".
std::string SecondsText(double seconds);

// The strategy in a comparison: "zero3 kept", "hybrid 2" with its shard group.
std::string RowName(const PlanReport& report);

// Tables of one strategy's plan.
std::string PlanText(const PlanReport& report, const PlanRequest& request);
// Two tables, memory and communication, of all strategies, and the recommendation. Rows name their
// workers where these differ, as hybrid's may, which are a multiple of its shard group.
std::string ComparisonText(const std::vector<PlanReport>& reports, const PlanRequest& request);

// {"strategy":…,"model_state_bytes":{…},"wire_bytes_per_step":{…},"peak_bytes":…,"fits":…,…}; what
// is not known is null.
Json PlanJson(const PlanReport& report, const PlanRequest& request);
// The groups and shards of one rank.
std::string RankLayoutText(const WorldLayout& layout, int rank);
// {"rank":…,"groups":[{"kind":…,"ranks":[…]},…],"shards":[{"unit":…,"begin":…,"end":…,…},…]}.
Json RankLayoutJson(const WorldLayout& layout, int rank);
// The ordered operations with their bytes.
Json OperationsJson(const RankPlan& plan);
// {"strategies":[…],"recommendation":{…}}.
Json ComparisonJson(const std::vector<PlanReport>& reports, const PlanRequest& request);

// One sentence: "zero2: not the highest stage: it fits with 12.1 GiB to spare and …".
std::string ReasonText(const std::vector<PlanReport>& reports, const Recommendation& best);
// One sentence that names the largest consumers, for a plan that does not fit.
std::string ShortfallText(const PlanReport& report);

}  // namespace sherd
