// What happens to an agent, and in words what it does about it.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/agent/agent_state.h"

namespace sherd {

inline AssignReceived Assign(const std::string& job, int64_t epoch, int rank = 1) {
  AssignReceived event;
  event.assignment.set_job_id(job);
  event.assignment.set_epoch(epoch);
  event.assignment.set_rank(rank);
  event.assignment.set_world(4);
  return event;
}

inline AbortReceived Abort(const std::string& job, int64_t epoch, int rank = 1) {
  AbortReceived event;
  event.abort.set_job_id(job);
  event.abort.set_epoch(epoch);
  event.abort.set_rank(rank);
  event.abort.set_reason("cancelled by a user");
  return event;
}

inline PauseReceived Pause(const std::string& job, int64_t epoch) {
  PauseReceived event;
  event.pause.set_job_id(job);
  event.pause.set_epoch(epoch);
  return event;
}

inline LocateReceived Locate(const std::string& job, int64_t epoch) {
  LocateReceived event;
  event.request.set_job_id(job);
  event.request.set_epoch(epoch);
  return event;
}

inline TrainerEnded Paused(int64_t step) {
  TrainerEnded event;
  event.paused = true;
  event.step = step;
  return event;
}

inline TrainerEnded Done(int64_t steps = 7) {
  TrainerEnded event;
  event.step = steps;
  event.weights_path = "out/weights";
  return event;
}

inline TrainerEnded Broken(const std::string& why) {
  TrainerEnded event;
  event.status = absl::UnavailableError(why);
  event.step = 3;
  event.operation = "step 4, h.1, reduce_scatter";
  event.lost_peer = 2;
  return event;
}

inline TrainerEnded Aborted() {
  TrainerEnded event;
  event.status = absl::AbortedError("aborted");
  return event;
}

// One line an action: "start a/1", "abort", "report a/1/r1 released", "exit 0".
inline std::string Describe(const AgentAction& action) {
  if (const auto* start = std::get_if<StartTrainer>(&action)) {
    return absl::StrCat("start ", start->assignment.job_id(), "/", start->assignment.epoch());
  }
  if (std::holds_alternative<AbortTrainer>(action)) return "abort";
  if (std::holds_alternative<PauseTrainer>(action)) return "pause";
  if (const auto* tell = std::get_if<TellPosition>(&action)) {
    return absl::StrCat("tell ", tell->id.job.value(), "/", tell->id.epoch.value());
  }
  if (const auto* exit = std::get_if<ExitProcess>(&action))
    return absl::StrCat("exit ", exit->code);
  const v1::RankReport& report = std::get<Report>(action).report;
  const std::string from =
      absl::StrCat(report.job_id(), "/", report.epoch(), "/r", report.rank(), " ");
  if (report.has_finished()) return absl::StrCat("report ", from, "finished");
  if (report.has_failed()) return absl::StrCat("report ", from, "failed");
  return absl::StrCat("report ", from, report.has_released() ? "released" : "?");
}

inline std::vector<std::string> Handle(AgentState& state, const AgentEvent& event) {
  std::vector<std::string> lines;
  for (const AgentAction& action : state.Handle(event)) lines.push_back(Describe(action));
  return lines;
}

inline v1::RankFailed FailureIn(AgentState& state, const AgentEvent& event) {
  const std::vector<AgentAction> actions = state.Handle(event);
  return std::get<Report>(actions.at(0)).report.failed();
}

}  // namespace sherd
