#include "client/event_sentences.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/recovery_phases.h"
#include "client/render_text.h"
#include "common/counted.h"
#include "common/printable_text.h"
#include "plan/candidates.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// A coordinator's log may be older than its own care of what workers say.
constexpr size_t kMostTextBytes = 8192;

std::string Printable(const std::string& text) { return PrintableText(text, kMostTextBytes); }

}  // namespace

std::string EpochSentence(const v1::EpochReport& epoch) {
  std::string text =
      absl::StrCat("epoch ", epoch.epoch(), " with ", Counted(epoch.world(), "worker"));
  if (epoch.recovery_seconds_size() > 0) {
    double sum = 0;
    std::string phases;
    for (const auto& [phase, seconds] : PhasesOf(epoch)) {
      sum += seconds;
      absl::StrAppendFormat(&phases, "%s%s %.2f", phases.empty() ? "" : ", ", phase, seconds);
    }
    absl::StrAppendFormat(&text, " goes on after step %d; recovered in %.2f s (%s)",
                          epoch.resumed_step(), sum, phases);
  }
  if (!epoch.reason().empty()) absl::StrAppend(&text, ": ", Printable(epoch.reason()));
  return text;
}

std::string RollbackSentence(const v1::Rollback& rollback) {
  return absl::StrCat("back from step ", rollback.from_step(), " to step ", rollback.to_step(),
                      ", the steps behind it come again: ", Printable(rollback.reason()));
}

std::string CheckpointSentence(const v1::CheckpointReport& checkpoint) {
  if (!checkpoint.error().empty()) {
    return absl::StrCat("step ", checkpoint.step(),
                        " could not be saved as a checkpoint: ", Printable(checkpoint.error()),
                        "; training goes on");
  }
  return absl::StrFormat("step %d is saved in %s (%s in %.2f s)", checkpoint.step(),
                         Printable(checkpoint.path()), HumanBytes(checkpoint.bytes()),
                         checkpoint.seconds());
}

std::string WarningSentence(const v1::Warning& warning) {
  const std::string rank = warning.rank() < 0 ? "" : absl::StrCat(", rank ", warning.rank());
  return absl::StrCat("warning (", Printable(warning.kind()), rank,
                      "): ", Printable(warning.text()));
}

std::string EventSentence(const v1::JobEvent& event, int64_t steps) {
  const auto verdict = [](v1::JobState state, const std::string& reason) {
    return absl::StrCat(NameOf(state), reason.empty() ? "" : ": ", Printable(reason));
  };
  switch (event.event_case()) {
    case v1::JobEvent::kState:
      return verdict(event.state().state(), event.state().reason());
    case v1::JobEvent::kStep:
      return StepLine(event.step(), steps, std::nullopt);
    case v1::JobEvent::kEval:
      return EvalLine(event.eval());
    case v1::JobEvent::kEpoch:
      return EpochSentence(event.epoch());
    case v1::JobEvent::kLedger:
      return absl::StrCat("ledger of rank ", event.ledger().rank());
    case v1::JobEvent::kLog:
      return absl::StrCat("[rank ", event.log().rank(), "] ", Printable(event.log().text()));
    case v1::JobEvent::kDone:
      return verdict(event.done().state(), event.done().reason());
    case v1::JobEvent::kRollback:
      return RollbackSentence(event.rollback());
    case v1::JobEvent::kCheckpoint:
      return CheckpointSentence(event.checkpoint());
    case v1::JobEvent::kWarning:
      return WarningSentence(event.warning());
    case v1::JobEvent::kDecision:
      return absl::StrCat("strategy auto on ", Counted(event.decision().world(), "worker"), " is ",
                          NameOf(event.decision().chosen()), ": ",
                          Printable(event.decision().reason()));
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
  return "an event that this version does not know";
}

}  // namespace sherd
