#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ledger_order.h"
#include "client/render_plan.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// What `--set` takes to have the strategy; only for those that this build executes.
Json SettingsJson(const PlanReport& report) {
  const StrategyChoice& choice = report.choice;
  Json settings = Json::array();
  settings.push_back(absl::StrCat("parallel.strategy=", NameOf(choice.strategy)));
  settings.push_back(absl::StrCat("parallel.zero1_gradients=", NameOf(choice.zero1_gradients)));
  settings.push_back(absl::StrCat("parallel.reshard_after_forward=",
                                  choice.reshard_after_forward ? "true" : "false"));
  // Of the others too: the job file may be one of hybrid.
  const bool grouped = choice.strategy == v1::STRATEGY_HYBRID;
  settings.push_back(absl::StrCat("parallel.shard_group=", grouped ? report.shard_group : 0));
  return settings;
}

template <typename Wires>
Json WiresJson(const Wires& wires, const std::vector<std::string>& names) {
  Json json = Json::object();
  for (const std::string& name : names) {
    const v1::WireLine& line = wires.at(name);
    json[name] = {{"bytes", line.bytes().predicted()}, {"messages", line.messages().predicted()}};
  }
  return json;
}

Json RankJson(const v1::RankLedger& ledger) {
  Json memory = Json::object();
  for (const std::string& pool : PoolsOf({ledger})) {
    memory[pool] = ledger.memory().at(pool).predicted();
  }
  Json json = {{"rank", ledger.rank()},
               {"memory", std::move(memory)},
               {"wire", WiresJson(ledger.wire(), CollectivesOf({ledger}))}};
  if (ledger.wire_by_group_size() > 0) {
    json["wire_by_group"] = WiresJson(ledger.wire_by_group(), GroupsIn({ledger}));
  }
  return json;
}

// Where devices have memory of their own.
Json OnDeviceJson(const v1::RankLedger& ledger) {
  Json memory = Json::object();
  Json host_memory = Json::object();
  for (const std::string& pool : PoolsOf({ledger})) {
    memory[pool] = ledger.memory().at(pool).predicted();
  }
  for (const std::string& pool : HostPoolsOf({ledger})) {
    host_memory[pool] = ledger.host_memory().at(pool).predicted();
  }
  return {{"rank", ledger.rank()},
          {"memory", std::move(memory)},
          {"host_memory", std::move(host_memory)}};
}

Json EstimateJson(const PlanReport& report, const PlanRequest& request) {
  Json json = {{"step_seconds", nullptr},
               {"compute_seconds", nullptr},
               {"exposed_seconds", nullptr},
               {"communication_seconds", OrNull(report.communication_seconds)},
               {"cost_model", nullptr}};
  if (report.times) {
    json["step_seconds"] = report.times->step;
    json["compute_seconds"] = report.times->compute;
    json["exposed_seconds"] = report.times->exposed;
  }
  if (report.communication_seconds) json["cost_model"] = request.cost_source;
  return json;
}

}  // namespace

Json PlanJson(const PlanReport& report, const PlanRequest& request) {
  Json wire = Json::object();
  for (const WireUse& use : report.wire) wire[use.collective] = use.bytes;
  wire["total"] = report.wire_total;
  Json checks = Json::array();
  for (const MemoryCheck& check : report.checks) {
    checks.push_back({{"limit", check.limit},
                      {"capacity_bytes", check.capacity},
                      {"needed_bytes", check.needed},
                      {"spare_bytes", check.spare()}});
  }
  Json json = {{"strategy", std::string(NameOf(report.choice.strategy))},
               {"name", NameOf(report.choice)},
               {"workers", report.workers},
               {"parameters", report.parameters},
               {"model_state_bytes",
                {{"params", report.state.params},
                 {"grads", report.state.grads},
                 {"optimizer", report.state.optimizer},
                 {"total", report.state.total()}}},
               {"redundant_bytes", report.redundant_bytes},
               {"gathered_bytes", OrNull(report.gathered_bytes)},
               {"wire_bytes_per_step", std::move(wire)},
               {"peak_bytes", OrNull(report.peak_bytes)},
               {"fits", OrNull(report.fits)},
               {"needs", report.peak_bytes ? "peak" : "model_state"},
               {"limits", std::move(checks)},
               {"estimate", EstimateJson(report, request)}};
  if (report.shard_group != report.data_degree()) json["shard_group"] = report.shard_group;
  if (report.tensor > 1) json["tensor"] = report.tensor;
  if (!report.ranks.empty()) {
    json["optimizer_location"] = OptimizerLocation(report.ranks.front());
    json["settings"] = SettingsJson(report);
    json["ranks"] = Json::array();
    for (const v1::RankLedger& rank : report.ranks) json["ranks"].push_back(RankJson(rank));
    for (const v1::RankLedger& rank : report.on_devices) {
      json["on_devices"].push_back(OnDeviceJson(rank));
    }
  }
  return json;
}

Json OperationsJson(const RankPlan& plan) {
  Json operations = Json::array();
  for (const PlannedOp& op : plan.step.ops) {
    operations.push_back({{"operation", Describe(op, plan.inventory)},
                          {"wire_bytes", op.wire().bytes},
                          {"wire_messages", op.wire().messages}});
  }
  return operations;
}

Json ComparisonJson(const std::vector<PlanReport>& reports, const PlanRequest& request) {
  Json strategies = Json::array();
  for (const PlanReport& report : reports) strategies.push_back(PlanJson(report, request));
  Json recommendation = nullptr;
  if (const std::optional<Recommendation> best = Recommend(reports)) {
    const StrategyChoice& choice = reports[best->chosen].choice;
    recommendation = {{"strategy", std::string(NameOf(choice.strategy))},
                      {"name", NameOf(choice)},
                      {"settings", SettingsJson(reports[best->chosen])},
                      {"reason", ReasonText(reports, *best)}};
  }
  return {{"strategies", std::move(strategies)}, {"recommendation", std::move(recommendation)}};
}

}  // namespace sherd
