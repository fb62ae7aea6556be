#include "plan/plan_report.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "google/protobuf/util/message_differencer.h"
#include "plan/device_ledger.h"
#include "plan/element_bytes.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"

namespace sherd {
namespace {

constexpr auto kScatter = v1::GRADIENT_REDUCTION_REDUCE_SCATTER;
constexpr auto kReduce = v1::GRADIENT_REDUCTION_ALL_REDUCE;

constexpr std::array<StrategyChoice, 6> kChoices = {{
    {v1::STRATEGY_DDP, kScatter, true},
    {v1::STRATEGY_ZERO1, kScatter, true},
    {v1::STRATEGY_ZERO1, kReduce, true},
    {v1::STRATEGY_ZERO2, kScatter, true},
    {v1::STRATEGY_ZERO3, kScatter, true},
    {v1::STRATEGY_ZERO3, kScatter, false},
}};

// What a rank needs of its device, and of its host.
struct NeededMemory {
  int64_t device;
  int64_t host;
};

void CheckLimits(const MemoryLimits& limits, const NeededMemory& needed, PlanReport& report) {
  if (limits.device) report.checks.push_back({"device", *limits.device, needed.device});
  if (limits.host) {
    const int64_t ranks = std::min(limits.workers_per_host, report.workers);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    report.checks.push_back(
        {"host", *limits.host, needed.host > kMost / ranks ? kMost : ranks * needed.host});
  }
  if (report.checks.empty()) return;
  report.fits = std::all_of(report.checks.begin(), report.checks.end(),
                            [](const MemoryCheck& check) { return check.spare() >= 0; });
}

bool SameButForTheRank(v1::RankLedger a, const v1::RankLedger& b) {
  a.set_rank(b.rank());
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

int64_t Pool(const v1::RankLedger& ledger, const char* pool) {
  return ledger.memory().at(pool).predicted();
}

// Model state of all ranks beyond one copy of `parameters`: of every tensor position what its
// data-parallel group holds beyond one copy, and what tensor positions hold alike.
int64_t RedundantOf(const RankPlan& plan, int64_t parameters) {
  TheoryQuestion question;
  question.strategy = plan.strategy;
  question.parameters = plan.inventory.elements;
  question.degree = plan.micro_batches.degree;
  question.shard_group = plan.layout.degree;
  question.param_bytes = plan.param_bytes;
  question.grad_bytes = plan.grad_bytes;
  const int64_t tensor = plan.part().place.degree;
  const int64_t state_bytes =
      plan.param_bytes + plan.grad_bytes + OptimizerElementBytes(plan.param_bytes);
  return tensor * RedundantBytes(question) +
         (tensor * plan.inventory.elements - parameters) * state_bytes;
}

}  // namespace

std::string NameOf(const StrategyChoice& choice) {
  const std::string name(NameOf(choice.strategy));
  if (choice.strategy == v1::STRATEGY_ZERO1 && choice.zero1_gradients == kReduce) {
    return absl::StrCat(name, " ", NameOf(kReduce));
  }
  const StrategyRow* row = FindStrategy(choice.strategy, choice.zero1_gradients);
  const bool gathers = row != nullptr && row->parameters == ParameterFlow::kGatherPerUse;
  return gathers && !choice.reshard_after_forward ? absl::StrCat(name, " kept") : name;
}

absl::Span<const StrategyChoice> StrategyChoices() { return kChoices; }

int64_t ComparedShardGroup(int64_t degree) {
  for (int64_t divisor = 2; divisor * divisor <= degree; ++divisor) {
    if (degree % divisor == 0) return degree / divisor;
  }
  return 1;
}

StrategyChoice ChoiceOf(const v1::ParallelSpec& parallel) {
  return {parallel.strategy(), parallel.zero1_gradients(), parallel.reshard_after_forward()};
}

void Choose(const StrategyChoice& choice, v1::ParallelSpec& parallel) {
  parallel.set_strategy(choice.strategy);
  parallel.set_zero1_gradients(choice.zero1_gradients);
  parallel.set_reshard_after_forward(choice.reshard_after_forward);
}

int64_t PlanReport::NeededBytes() const {
  return peak_bytes.value_or(state.total() + gathered_bytes.value_or(0));
}

int64_t PlanReport::SpareBytes() const {
  SHERD_CHECK(!checks.empty());
  int64_t spare = checks.front().spare();
  for (const MemoryCheck& check : checks) spare = std::min(spare, check.spare());
  return spare;
}

PlanReport ReportOnJob(const v1::JobSpec& spec, int workers, const MemoryLimits& limits,
                       const CostModel& cost, int threads, std::optional<int> rank) {
  const RankPlan plan = BuildRankPlan(spec, 0, workers);
  const v1::RankLedger first = PredictLedger(plan, spec, threads);
  PlanReport report;
  report.choice = ChoiceOf(spec.parallel());
  report.workers = workers;
  report.tensor = plan.part().place.degree;
  report.shard_group = plan.layout.degree;
  report.parameters = BuildInventory(plan.shape).elements;
  report.state = {Pool(first, "params"), Pool(first, "grads"), Pool(first, "optimizer")};
  report.redundant_bytes = RedundantOf(plan, report.parameters);
  report.gathered_bytes = Pool(first, "gathered");
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce", "exchange"}) {
    const auto found = first.wire().find(name);
    if (found != first.wire().end()) {
      report.wire.push_back({name, found->second.bytes().predicted()});
    }
  }
  report.wire_total = first.wire().at("total").bytes().predicted();
  report.peak_bytes = Pool(first, "peak");
  report.times = EstimateStep(plan, spec, cost);
  report.communication_seconds = report.times->communication;
  NeededMemory needed{*report.peak_bytes, *report.peak_bytes};
  if (plan.offloads && limits.device) {
    const v1::RankLedger on_device = OnDevice(plan, spec, first, std::nullopt);
    needed = {Pool(on_device, "peak"), on_device.host_memory().at("peak").predicted()};
  }
  CheckLimits(limits, needed, report);
  const auto ledger_of = [&](int each) {
    return PredictLedger(BuildRankPlan(spec, each, workers), spec, threads);
  };
  if (rank) {
    report.ranks.push_back(ledger_of(*rank));
  } else {
    report.ranks.push_back(first);
    v1::RankLedger last = workers > 1 ? ledger_of(workers - 1) : first;
    if (!SameButForTheRank(first, last)) report.ranks.push_back(std::move(last));
  }
  if (!plan.offloads) return report;
  for (const v1::RankLedger& each : report.ranks) {
    report.on_devices.push_back(
        OnDevice(BuildRankPlan(spec, each.rank(), workers), spec, each, std::nullopt));
  }
  return report;
}

PlanReport ReportOnTheory(const TheoryQuestion& question, const MemoryLimits& limits,
                          std::optional<double> bandwidth) {
  PlanReport report;
  report.choice.strategy = question.strategy.strategy;
  if (question.strategy.variant != v1::GRADIENT_REDUCTION_UNSPECIFIED) {
    report.choice.zero1_gradients = question.strategy.variant;
  }
  report.choice.reshard_after_forward = question.reshard_after_forward;
  report.workers = question.degree;
  report.shard_group = question.shard_group;
  report.parameters = question.parameters;
  report.state = StateBytesOf(question);
  report.redundant_bytes = RedundantBytes(question);
  report.gathered_bytes = GatheredBytes(question);
  const WireBytes wire = WireBytesOf(question);
  report.wire = {{"all_gather", wire.all_gather},
                 {"reduce_scatter", wire.reduce_scatter},
                 {"all_reduce", wire.all_reduce}};
  report.wire_total = wire.total();
  if (bandwidth) report.communication_seconds = static_cast<double>(wire.total()) / *bandwidth;
  CheckLimits(limits, {report.NeededBytes(), report.NeededBytes()}, report);
  return report;
}

std::vector<Consumer> LargestConsumers(const PlanReport& report, size_t most) {
  std::vector<Consumer> consumers;
  if (report.ranks.empty()) {
    consumers = {{"params", report.state.params},
                 {"grads", report.state.grads},
                 {"optimizer", report.state.optimizer},
                 {"gathered", report.gathered_bytes.value_or(0)}};
  } else {
    for (const auto& [pool, line] : report.ranks.front().memory()) {
      if (pool != "peak") consumers.push_back({pool, line.predicted()});
    }
  }
  std::sort(consumers.begin(), consumers.end(), [](const Consumer& a, const Consumer& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.pool < b.pool;
  });
  if (consumers.size() > most) consumers.resize(most);
  return consumers;
}

}  // namespace sherd
