#include "client/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/event_sentences.h"
#include "client/render_decision.h"
#include "client/render_json.h"
#include "client/render_text.h"
#include "common/printable_text.h"
#include "plan/job_spec.h"

namespace sherd {

namespace {

// A coordinator's log may be older than its own care of what workers say.
constexpr size_t kMostTextBytes = 8192;

bool IsBadEnd(v1::JobState state) {
  return state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED;
}

// "FAILED: rank 1 died".
std::string Verdict(v1::JobState state, const std::string& reason) {
  return absl::StrCat(NameOf(state), reason.empty() ? "" : ": ",
                      PrintableText(reason, kMostTextBytes));
}

}  // namespace

Progress::Progress(const Options& options, std::ostream& out, std::ostream& chatter)
    : options_(options), out_(out), chatter_(chatter) {}

void Progress::Show(const v1::JobEvent& event) {
  if (event.has_done()) done_ = event.done();
  switch (options_.format) {
    case OutputFormat::kJson:
      out_ << ToLine(EventJson(event)) << std::endl;
      return;
    case OutputFormat::kYaml:
      out_ << "---\n" << ToYaml(EventJson(event)) << std::flush;
      return;
    case OutputFormat::kTable:
      ShowToPerson(event);
      return;
  }
}

void Progress::ShowToPerson(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kState: {
      const v1::StateChange& state = event.state();
      // The last word is Finish's.
      if (IsBadEnd(state.state())) return;
      Say(Verdict(state.state(), state.reason()));
      return;
    }
    case v1::JobEvent::kStep:
      ShowStep(event.step());
      return;
    case v1::JobEvent::kEval:
      ClearBar();
      out_ << EvalLine(event.eval()) << std::endl;
      return;
    case v1::JobEvent::kEpoch:
      Say(EpochSentence(event.epoch()));
      return;
    case v1::JobEvent::kRollback:
      Say(RollbackSentence(event.rollback()));
      // Its figures count no more; the steps behind come again.
      if (step_ && step_->step() > event.rollback().to_step()) step_.reset();
      return;
    case v1::JobEvent::kCheckpoint:
      Say(CheckpointSentence(event.checkpoint()));
      return;
    case v1::JobEvent::kWarning:
      Say(WarningSentence(event.warning()));
      return;
    case v1::JobEvent::kDecision:
      Say(DecisionText(event.decision()));
      return;
    case v1::JobEvent::kLedger:
      ledgers_.push_back(event.ledger());
      return;
    case v1::JobEvent::kLog:
      Say(absl::StrCat("[rank ", event.log().rank(), "] ",
                       PrintableText(event.log().text(), kMostTextBytes)));
      return;
    case v1::JobEvent::kDone:
    case v1::JobEvent::EVENT_NOT_SET:
      return;
  }
}

void Progress::ShowStep(const v1::StepReport& step) {
  constexpr double kMemory = 0.9;
  const bool settled = step_ && step_->step() > 1;
  step_ms_ = settled ? kMemory * step_ms_ + (1 - kMemory) * step.step_ms() : step.step_ms();
  step_ = step;
  if (options_.bar) return DrawBar();
  constexpr int64_t kLines = 20;
  const int64_t every = std::max<int64_t>(1, options_.steps / kLines);
  if (step.step() % every == 0 || step.step() == 1 || step.step() == options_.steps) {
    out_ << StepLine(step, options_.steps, TimeLeft()) << std::endl;
  }
}

absl::Duration Progress::TimeLeft() const {
  return absl::Milliseconds(step_ms_) * static_cast<double>(options_.steps - step_->step());
}

void Progress::DrawBar() {
  chatter_ << "\r" << BarLine(*step_, options_.steps, TimeLeft()) << "\x1b[K" << std::flush;
  bar_drawn_ = true;
}

void Progress::ClearBar() {
  if (!bar_drawn_) return;
  chatter_ << "\r\x1b[K" << std::flush;
  bar_drawn_ = false;
}

void Progress::Say(absl::string_view sentence) {
  ClearBar();
  chatter_ << std::string(sentence) << std::endl;
}

void Progress::Finish() {
  ClearBar();
  if (options_.format != OutputFormat::kTable) return;
  if (options_.bar && step_) out_ << StepLine(*step_, options_.steps, TimeLeft()) << "\n";
  if (!ledgers_.empty()) out_ << "\n" << LedgerTables(ledgers_);
  out_ << std::flush;
  if (done_ && IsBadEnd(done_->state())) {
    chatter_ << "\n" << Verdict(done_->state(), done_->reason()) << std::endl;
  }
}

}  // namespace sherd
