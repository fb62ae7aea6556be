#include "client/render_decision.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/render_plan.h"
#include "client/render_text.h"
#include "common/counted.h"
#include "common/printable_text.h"
#include "plan/candidates.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// Of a table that a person reads.
constexpr size_t kMostRows = 20;
constexpr size_t kMostReasonBytes = 8192;

std::vector<v1::Candidate> CandidatesOf(const v1::StrategyDecision& decision) {
  return {decision.candidates().begin(), decision.candidates().end()};
}

Json SecondsJson(double seconds) { return seconds > 0 ? Json(seconds) : Json(nullptr); }

Json ProbeJson(const v1::TrialReport& probe) {
  Json collectives = Json::array();
  for (const v1::CollectiveFigure& figure : probe.collectives()) {
    collectives.push_back({{"op", figure.op()},
                           {"group_size", figure.group_size()},
                           {"stride", figure.stride()},
                           {"bytes", figure.bytes()},
                           {"seconds", figure.seconds()}});
  }
  return {{"matmul_flops_per_second", probe.matmul_flops_per_second()},
          {"copy_bytes_per_second", probe.copy_bytes_per_second()},
          {"collectives", std::move(collectives)}};
}

// Those that were measured before those that were not, each as they came.
std::vector<v1::Candidate> MeasuredFirst(std::vector<v1::Candidate> candidates) {
  std::stable_partition(candidates.begin(), candidates.end(), [](const v1::Candidate& candidate) {
    return candidate.measured_step_seconds() > 0;
  });
  return candidates;
}

}  // namespace

Json KeysJson(const v1::Candidate& candidate) {
  const v1::ParallelSpec& parallel = candidate.parallel();
  Json keys = {{"strategy", std::string(NameOf(parallel.strategy()))}};
  if (parallel.strategy() == v1::STRATEGY_ZERO1) {
    keys["zero1_gradients"] = std::string(NameOf(parallel.zero1_gradients()));
  }
  const bool gathers =
      parallel.strategy() == v1::STRATEGY_ZERO3 || parallel.strategy() == v1::STRATEGY_HYBRID;
  if (gathers) keys["reshard_after_forward"] = parallel.reshard_after_forward();
  if (parallel.shard_group() > 0) keys["shard_group"] = parallel.shard_group();
  keys["tensor"] = parallel.tensor();
  if (parallel.tensor() > 1) keys["sequence_parallel"] = parallel.sequence_parallel();
  keys["recompute"] = std::string(NameOf(parallel.recompute()));
  return {{"parallel", std::move(keys)}, {"train", {{"micro_batch", candidate.micro_batch()}}}};
}

std::string KeysText(const v1::Candidate& candidate) {
  std::string text;
  const Json keys = KeysJson(candidate);
  for (const auto& [section, values] : keys.items()) {
    absl::StrAppend(&text, section, ": {");
    const char* separator = "";
    for (const auto& [key, value] : values.items()) {
      absl::StrAppend(&text, separator, key, ": ",
                      value.is_string() ? value.get<std::string>() : ToLine(value));
      separator = ", ";
    }
    text += "}\n";
  }
  return text;
}

Json CandidatesJson(const std::vector<v1::Candidate>& candidates) {
  Json json = Json::array();
  for (const v1::Candidate& candidate : candidates) {
    Json one = {{"name", NameOf(candidate)}};
    one.update(KeysJson(candidate));
    one.erase("train");
    one["micro_batch"] = candidate.micro_batch();
    one["peak_bytes"] = candidate.peak_bytes();
    one["fits"] = candidate.fits();
    one["predicted_step_seconds"] = candidate.predicted_step_seconds();
    one["measured_step_seconds"] = SecondsJson(candidate.measured_step_seconds());
    json.push_back(std::move(one));
  }
  return json;
}

Json DecisionJson(const v1::StrategyDecision& decision) {
  return {{"event", "decision"},
          {"world", decision.world()},
          {"chosen", CandidatesJson({decision.chosen()}).front()},
          {"keys", KeysJson(decision.chosen())},
          {"reason", decision.reason()},
          {"candidates", CandidatesJson(CandidatesOf(decision))},
          {"probe", decision.has_probe() ? ProbeJson(decision.probe()) : Json(nullptr)}};
}

std::string CandidatesTable(const std::vector<v1::Candidate>& candidates, size_t most) {
  const bool measured = std::any_of(
      candidates.begin(), candidates.end(),
      [](const v1::Candidate& candidate) { return candidate.measured_step_seconds() > 0; });
  std::vector<std::vector<std::string>> rows = {{"candidate", "peak", "predicted"}};
  if (measured) rows.front().emplace_back("measured");
  for (const v1::Candidate& candidate : candidates) {
    if (rows.size() > most) break;
    rows.push_back(
        {NameOf(candidate),
         absl::StrCat(HumanBytes(candidate.peak_bytes()), candidate.fits() ? "" : " does not fit"),
         SecondsText(candidate.predicted_step_seconds())});
    if (!measured) continue;
    const double seconds = candidate.measured_step_seconds();
    rows.back().push_back(seconds > 0 ? SecondsText(seconds) : "-");
  }
  std::vector<bool> right(rows.front().size(), true);
  right.front() = false;
  std::string table = Table(rows, right);
  if (candidates.size() > most) {
    absl::StrAppend(&table, "and ", candidates.size() - most, " more\n");
  }
  return table;
}

std::string DecisionText(const v1::StrategyDecision& decision) {
  std::string text = absl::StrCat("strategy auto on ", Counted(decision.world(), "worker"), " is ",
                                  NameOf(decision.chosen()), ": ",
                                  PrintableText(decision.reason(), kMostReasonBytes), "\n",
                                  CandidatesTable(MeasuredFirst(CandidatesOf(decision)), kMostRows),
                                  "as keys of a job file:\n", KeysText(decision.chosen()));
  text.pop_back();
  return text;
}

}  // namespace sherd
