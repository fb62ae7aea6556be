#include "client/render_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/ledger_order.h"
#include "client/recovery_phases.h"
#include "client/render_decision.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

std::string Text(absl::string_view text) { return std::string(text); }

// "2026-01-31T12:00:00.000+00:00", or null for a time that has not come.
Json TimeJson(int64_t unix_ms) {
  if (unix_ms == 0) return nullptr;
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::FromUnixMillis(unix_ms),
                          absl::UTCTimeZone());
}

Json LineJson(const v1::LedgerLine& line) {
  return {{"predicted", line.predicted()}, {"measured", line.measured()}};
}

Json StepJson(const v1::StepReport& step) {
  return {{"event", "step"},
          {"step", step.step()},
          {"epoch", step.epoch()},
          {"loss", step.loss()},
          {"grad_norm", step.grad_norm()},
          {"lr", step.lr()},
          {"tokens", step.tokens()},
          {"tokens_per_second", step.tokens_per_second()},
          {"step_ms", step.step_ms()},
          {"exposed_ms", step.exposed_ms()}};
}

Json EvalJson(const v1::EvalReport& eval) {
  return {{"event", "eval"},
          {"step", eval.step()},
          {"epoch", eval.epoch()},
          {"loss", eval.loss()},
          {"tokens", eval.tokens()}};
}

Json EpochJson(const v1::EpochReport& epoch) {
  Json json = {{"event", "epoch"},
               {"epoch", epoch.epoch()},
               {"world", epoch.world()},
               {"reason", epoch.reason()},
               {"resumed_step", epoch.resumed_step()}};
  for (const auto& [phase, seconds] : PhasesOf(epoch)) json["recovery_seconds"][phase] = seconds;
  return json;
}

Json RollbackJson(const v1::Rollback& rollback) {
  return {{"event", "rollback"},
          {"from_step", rollback.from_step()},
          {"to_step", rollback.to_step()},
          {"reason", rollback.reason()}};
}

Json CheckpointJson(const v1::CheckpointReport& checkpoint) {
  return {{"event", "checkpoint"},       {"step", checkpoint.step()},
          {"epoch", checkpoint.epoch()}, {"path", checkpoint.path()},
          {"bytes", checkpoint.bytes()}, {"seconds", checkpoint.seconds()},
          {"error", checkpoint.error()}};
}

Json WarningJson(const v1::Warning& warning) {
  return {{"event", "warning"},
          {"kind", warning.kind()},
          {"rank", warning.rank() < 0 ? Json(nullptr) : Json(warning.rank())},
          {"text", warning.text()}};
}

template <typename Wires>
Json WiresJson(const Wires& wires, const std::vector<std::string>& names) {
  Json json = Json::object();
  for (const std::string& name : names) {
    const v1::WireLine& line = wires.at(name);
    json[name] = LineJson(line.bytes());
    json[name]["messages"] = LineJson(line.messages());
  }
  return json;
}

Json LedgerJson(const v1::RankLedger& ledger) {
  Json memory = Json::object();
  for (const std::string& pool : PoolsOf({ledger})) {
    memory[pool] = LineJson(ledger.memory().at(pool));
  }
  Json json = {{"event", "ledger"},
               {"rank", ledger.rank()},
               {"memory", std::move(memory)},
               {"wire", WiresJson(ledger.wire(), CollectivesOf({ledger}))},
               {"process_bytes", ledger.process_bytes()},
               {"optimizer_location", OptimizerLocation(ledger)}};
  for (const std::string& pool : HostPoolsOf({ledger})) {
    json["host_memory"][pool] = LineJson(ledger.host_memory().at(pool));
  }
  if (ledger.wire_by_group_size() > 0) {
    json["wire_by_group"] = WiresJson(ledger.wire_by_group(), GroupsIn({ledger}));
  }
  return json;
}

Json DoneJson(const v1::Done& done) {
  return {{"event", "done"},
          {"state", Text(NameOf(done.state()))},
          {"steps", done.steps()},
          {"reason", done.reason()},
          {"weights_path", done.weights_path()}};
}

Json RanksJson(const v1::Job& job) {
  Json ranks = Json::array();
  for (const v1::RankStatus& rank : job.ranks()) {
    ranks.push_back({{"rank", rank.rank()},
                     {"worker", rank.worker_id()},
                     {"status", rank.status()},
                     {"reason", rank.reason()}});
    if (!rank.has_peak()) continue;
    ranks.back()["peak"] = {{"predicted", rank.peak().predicted()},
                            {"measured", rank.peak().measured()}};
  }
  return ranks;
}

}  // namespace

Json EventJson(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kState:
      return {{"event", "state"},
              {"state", Text(NameOf(event.state().state()))},
              {"reason", event.state().reason()}};
    case v1::JobEvent::kStep:
      return StepJson(event.step());
    case v1::JobEvent::kEval:
      return EvalJson(event.eval());
    case v1::JobEvent::kEpoch:
      return EpochJson(event.epoch());
    case v1::JobEvent::kLedger:
      return LedgerJson(event.ledger());
    case v1::JobEvent::kLog:
      return {{"event", "log"}, {"rank", event.log().rank()}, {"text", event.log().text()}};
    case v1::JobEvent::kDone:
      return DoneJson(event.done());
    case v1::JobEvent::kRollback:
      return RollbackJson(event.rollback());
    case v1::JobEvent::kCheckpoint:
      return CheckpointJson(event.checkpoint());
    case v1::JobEvent::kWarning:
      return WarningJson(event.warning());
    case v1::JobEvent::kDecision:
      return DecisionJson(event.decision());
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
  return {{"event", "unknown"}, {"sequence", event.sequence()}};
}

Json JobJson(const v1::Job& job) {
  Json json = {{"id", job.id()},
               {"name", job.name()},
               {"state", Text(NameOf(job.state()))},
               {"reason", job.reason()},
               {"epoch", job.epoch()},
               {"step", job.step()},
               {"loss", job.step() > 0 ? Json(job.loss()) : Json(nullptr)},
               {"submitted", TimeJson(job.submitted_unix_ms())},
               {"ended", TimeJson(job.ended_unix_ms())},
               {"weights_path", job.weights_path()}};
  if (job.has_last_step()) {
    json["last_step"] = StepJson(job.last_step());
    json["last_step"].erase("event");
  }
  if (job.has_last_epoch()) {
    json["last_epoch"] = EpochJson(job.last_epoch());
    json["last_epoch"].erase("event");
  }
  if (job.ranks_size() > 0) json["ranks"] = RanksJson(job);
  if (job.has_decision()) json["decision"] = DecisionJson(job.decision());
  if (job.has_spec()) json["spec"] = SpecJson(job.spec());
  return json;
}

Json JobsJson(const std::vector<v1::Job>& jobs) {
  Json json = Json::array();
  for (const v1::Job& job : jobs) json.push_back(JobJson(job));
  return json;
}

Json WorkerJson(const v1::Worker& worker) {
  const bool busy = !worker.job_id().empty();
  return {{"id", worker.id()},
          {"device", worker.device()},
          {"host", worker.host()},
          {"status", worker.status()},
          {"job", busy ? Json(worker.job_id()) : Json(nullptr)},
          {"rank", busy ? Json(worker.rank()) : Json(nullptr)},
          {"incarnation", worker.incarnation()}};
}

Json WorkersJson(const std::vector<v1::Worker>& workers) {
  Json json = Json::array();
  for (const v1::Worker& worker : workers) json.push_back(WorkerJson(worker));
  return json;
}

std::string ToLine(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

namespace {

// JSON's scalars and empty containers are YAML as they stand; the rest is laid out by indentation.
void AppendYaml(const Json& json, const std::string& indent, std::string& out) {
  const auto append_value = [&](const Json& value) {
    if (value.is_structured() && !value.empty()) {
      out += "\n";
      AppendYaml(value, absl::StrCat(indent, "  "), out);
    } else {
      absl::StrAppend(&out, " ", ToLine(value), "\n");
    }
  };
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      absl::StrAppend(&out, indent, key, ":");
      append_value(value);
    }
  } else {
    for (const Json& value : json) {
      absl::StrAppend(&out, indent, "-");
      append_value(value);
    }
  }
}

}  // namespace

std::string ToYaml(const Json& json) {
  if (!json.is_structured() || json.empty()) return absl::StrCat(ToLine(json), "\n");
  std::string out;
  AppendYaml(json, "", out);
  return out;
}

}  // namespace sherd
