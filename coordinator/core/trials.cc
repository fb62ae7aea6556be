#include "coordinator/core/trials.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/counted.h"
#include "common/printable_text.h"
#include "coordinator/core/epoch_end.h"
#include "coordinator/core/next_trial.h"
#include "coordinator/core/trial_world.h"
#include "plan/candidates.h"
#include "plan/probe_cost.h"

namespace sherd {
namespace {

// Attempts at one measurement, and failures of a rank's own at one candidate.
constexpr int64_t kMostAttempts = 3;
constexpr int64_t kMostFailures = 2;
// Epochs whose layouts are remembered: what is older is held by nobody who would be believed.
constexpr size_t kLayoutsKept = 64;
constexpr size_t kMostFailureBytes = 400;

std::string SecondsText(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.3g ms", 1e3 * seconds)
                     : absl::StrFormat("%.3g s", seconds);
}

v1::JobSpec AskedSpec(const JobRecord& job) {
  v1::JobSpec spec = job.spec;
  *spec.mutable_parallel() = job.trials.asked;
  spec.mutable_train()->set_micro_batch(job.trials.asked_micro_batch);
  return spec;
}

void Strike(TriedCandidate& tried, const std::string& why) {
  tried.failure = PrintableText(why, kMostFailureBytes);
  tried.candidate.clear_measured_step_seconds();
}

// Of a measurement that brought nothing: whether there may be another attempt. Who was measured
// before is not struck off for what befell others.
void SettleFailure(JobRecord& job) {
  Trials& trials = job.trials;
  if (trials.current < 0) return;
  TriedCandidate& tried = trials.candidates[static_cast<size_t>(trials.current)];
  if (!tried.failure.empty()) return;
  const bool own = job.end_kind == EndKind::kFailure;
  if (IsMeasured(tried) && !own) return;
  if (tried.attempts >= (own ? kMostFailures : kMostAttempts)) Strike(tried, job.cause);
}

// Measured over predicted, of the candidate itself or else of all that were measured: what the
// model does not know of this model on these machines.
double CorrectionOf(const v1::Candidate& candidate, const std::vector<TriedCandidate>& known) {
  double sum = 0;
  int64_t count = 0;
  for (const TriedCandidate& tried : known) {
    if (!IsMeasured(tried) || tried.candidate.predicted_step_seconds() <= 0) continue;
    const double ratio =
        tried.candidate.measured_step_seconds() / tried.candidate.predicted_step_seconds();
    if (SameLayout(tried.candidate, candidate)) return ratio;
    sum += std::log(ratio);
    ++count;
  }
  return count == 0 ? 1 : std::exp(sum / static_cast<double>(count));
}

std::vector<v1::Candidate> List(const State& state, const JobRecord& job, const v1::JobSpec& spec,
                                const std::vector<WorkerId>& workers) {
  const CandidateWorld world = WorldOf(state, workers);
  const CostModel profile = ProfileOf(state, workers);
  return ListCandidates(spec, world, [&](const v1::ParallelSpec& parallel) {
    if (!job.trials.probe) return profile;
    return CostFromProbe(*job.trials.probe, profile, parallel, world.ranks);
  });
}

void ListForTrials(const State& state, JobRecord& job, const std::vector<WorkerId>& workers) {
  Trials& trials = job.trials;
  trials.world = static_cast<int64_t>(workers.size());
  trials.current = -1;
  trials.candidates.clear();
  for (v1::Candidate& candidate : List(state, job, AskedSpec(job), workers)) {
    trials.candidates.push_back({std::move(candidate), 0, ""});
  }
}

void Begin(JobRecord& job, int64_t candidate, const v1::Candidate& layout) {
  Trials& trials = job.trials;
  trials.current = candidate;
  trials.reports.clear();
  ++trials.number;
  job.spec = WithCandidate(AskedSpec(job), layout);
}

void Publish(Transition& transition, JobRecord& job, const v1::Candidate& chosen,
             std::string reason) {
  Trials& trials = job.trials;
  v1::StrategyDecision decision;
  decision.set_world(trials.world);
  *decision.mutable_chosen() = chosen;
  for (const TriedCandidate& tried : trials.candidates) {
    *decision.add_candidates() = tried.candidate;
  }
  decision.set_reason(std::move(reason));
  if (trials.probe) *decision.mutable_probe() = *trials.probe;
  job.spec = WithCandidate(AskedSpec(job), chosen);
  trials.phase = Trials::Phase::kDecided;
  trials.current = -1;
  trials.reports.clear();
  trials.decision = decision;
  v1::JobEvent event;
  *event.mutable_decision() = std::move(decision);
  transition.Publish(job, std::move(event));
}

std::string FailuresOf(const Trials& trials) {
  std::string text;
  for (const TriedCandidate& tried : trials.candidates) {
    if (tried.failure.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", NameOf(tried.candidate), ": ", tried.failure);
  }
  return text;
}

bool Fail(Transition& transition, JobRecord& job, std::string reason) {
  transition.End(job, v1::JOB_STATE_FAILED, std::move(reason));
  return false;
}

bool Decide(Transition& transition, JobRecord& job) {
  Trials& trials = job.trials;
  if (trials.candidates.empty()) {
    return Fail(transition, job,
                absl::StrCat("no strategy goes with the job's settings on ",
                             Counted(trials.world, "worker")));
  }
  const TriedCandidate& first = trials.candidates.front();
  if (!first.candidate.fits()) {
    int64_t least = first.candidate.peak_bytes();
    for (const TriedCandidate& tried : trials.candidates) {
      least = std::min(least, tried.candidate.peak_bytes());
    }
    return Fail(transition, job,
                absl::StrCat("no strategy fits the memory of ", Counted(trials.world, "worker"),
                             ": the smallest needs ", Counted(least, "byte"), " a rank"));
  }
  const TriedCandidate* fastest = Fastest(trials);
  if (fastest != nullptr) {
    const v1::Candidate chosen = fastest->candidate;
    Publish(transition, job, chosen,
            absl::StrCat("the fastest of those that were tried: ",
                         SecondsText(chosen.measured_step_seconds()), " a step"));
    return true;
  }
  if (const std::string failures = FailuresOf(trials); !failures.empty()) {
    return Fail(transition, job, absl::StrCat("no strategy could be run; ", failures));
  }
  const v1::Candidate chosen = first.candidate;
  Publish(transition, job, chosen, "the only one that fits");
  return true;
}

// For another number of workers, at once and without trials: what the model makes of the probe's
// figures, corrected by what the trials have shown. What its state is cut over tensor-parallel
// groups by, and how the batch is, stay.
void DecideAgain(Transition& transition, JobRecord& job, const std::vector<WorkerId>& workers) {
  Trials& trials = job.trials;
  v1::JobSpec spec = AskedSpec(job);
  const v1::Candidate& before = trials.decision->chosen();
  spec.mutable_parallel()->set_tensor(before.parallel().tensor());
  spec.mutable_parallel()->set_sequence_parallel(before.parallel().sequence_parallel());
  spec.mutable_train()->set_micro_batch(before.micro_batch());
  std::vector<v1::Candidate> candidates = List(transition.state(), job, spec, workers);
  if (candidates.empty()) return;
  for (v1::Candidate& candidate : candidates) {
    candidate.set_predicted_step_seconds(candidate.predicted_step_seconds() *
                                         CorrectionOf(candidate, trials.candidates));
  }
  const auto better = [](const v1::Candidate& a, const v1::Candidate& b) {
    if (a.fits() != b.fits()) return a.fits();
    // What cannot fit may come near it.
    return a.fits() ? a.predicted_step_seconds() < b.predicted_step_seconds()
                    : a.peak_bytes() < b.peak_bytes();
  };
  std::stable_sort(candidates.begin(), candidates.end(), better);
  const v1::Candidate chosen = candidates.front();
  const int64_t world = trials.world;
  const std::vector<TriedCandidate> tried = trials.candidates;
  trials.world = static_cast<int64_t>(workers.size());
  trials.candidates.clear();
  for (v1::Candidate& candidate : candidates) trials.candidates.push_back({candidate, 0, ""});
  Publish(
      transition, job, chosen,
      absl::StrCat("the world is of another size: ", SecondsText(chosen.predicted_step_seconds()),
                   " a step is predicted from the probe and from what was measured with ",
                   Counted(world, "worker")));
  // What was measured corrects the next such decision, too.
  trials.candidates = tried;
}

}  // namespace

void BeginTrials(JobRecord& job) {
  if (job.spec.parallel().strategy() != v1::STRATEGY_AUTO) return;
  job.trials.phase = Trials::Phase::kProbe;
  job.trials.asked = job.spec.parallel();
  job.trials.asked_micro_batch = job.spec.train().micro_batch();
}

bool PlanLayout(Transition& transition, JobRecord& job, const std::vector<WorkerId>& workers) {
  Trials& trials = job.trials;
  const auto world = static_cast<int64_t>(workers.size());
  if (trials.phase == Trials::Phase::kNone) return true;
  if (trials.phase == Trials::Phase::kDecided) {
    if (world != trials.world) DecideAgain(transition, job, workers);
    return true;
  }
  if (trials.phase == Trials::Phase::kProbe) {
    if (!trials.probe && trials.probe_attempts < kMostAttempts) {
      ++trials.probe_attempts;
      trials.world = world;
      Begin(job, -1, AnyCandidate(AskedSpec(job)));
      return true;
    }
    trials.phase = Trials::Phase::kTrial;
    ListForTrials(transition.state(), job, workers);
  }
  SettleFailure(job);
  if (world != trials.world) ListForTrials(transition.state(), job, workers);
  const int64_t next = NextTrial(trials);
  if (next < 0) return Decide(transition, job);
  TriedCandidate& tried = trials.candidates[static_cast<size_t>(next)];
  ++tried.attempts;
  Begin(job, next, tried.candidate);
  return true;
}

void NoteEpoch(JobRecord& job) {
  Trials& trials = job.trials;
  if (trials.phase == Trials::Phase::kNone) return;
  if (IsUndecided(job)) {
    trials.last_epoch = job.epoch;
    return;
  }
  trials.layouts[job.epoch.value()] = job.spec.parallel();
  if (trials.layouts.size() > kLayoutsKept) trials.layouts.erase(trials.layouts.begin());
}

void OnMeasured(Transition& transition, JobRecord& job, int rank, const v1::RankChanged& event) {
  RankState& state = job.ranks[rank];
  if (state.phase != RankPhase::kFailed) state.phase = RankPhase::kReleased;
  state.left = true;
  if (!IsUnderway(job.state)) return;
  if (job.state == v1::JOB_STATE_RECOVERING) return NoteLeaving(transition, job);
  Trials& trials = job.trials;
  trials.reports[rank] = event.trial();
  const bool all = std::all_of(job.ranks.begin(), job.ranks.end(),
                               [](const RankState& other) { return other.left; });
  if (!all) return;
  std::vector<v1::TrialReport> reports;
  for (const auto& [of, report] : trials.reports) reports.push_back(report);
  v1::TrialReport slowest = SlowestOf(reports);
  std::string sentence;
  if (trials.current < 0) {
    sentence = absl::StrFormat("%s: %.3g GFLOP/s and %.3g GB/s a rank", DescribeMeasurement(job),
                               slowest.matmul_flops_per_second() / 1e9,
                               slowest.copy_bytes_per_second() / 1e9);
    trials.probe = std::move(slowest);
  } else if (slowest.step_seconds() > 0) {
    sentence = absl::StrCat(DescribeMeasurement(job), ": ", SecondsText(slowest.step_seconds()),
                            " a step");
    TriedCandidate& tried = trials.candidates[static_cast<size_t>(trials.current)];
    const double before = tried.candidate.measured_step_seconds();
    tried.candidate.set_measured_step_seconds(
        IsMeasured(tried) ? std::min(before, slowest.step_seconds()) : slowest.step_seconds());
  } else {
    sentence = absl::StrCat(DescribeMeasurement(job), ": no figures");
  }
  EndMeasuringEpoch(transition, job, std::move(sentence));
}

void StrikeOff(JobRecord& job, const std::string& why) {
  Trials& trials = job.trials;
  if (trials.current < 0) return;
  Strike(trials.candidates[static_cast<size_t>(trials.current)], why);
}

v1::Trial TrialOf(const JobRecord& job) {
  v1::Trial trial;
  trial.set_number(job.trials.number);
  if (job.trials.current < 0) {
    for (const int64_t size : ProbeGroupSizes(static_cast<int>(job.ranks.size()))) {
      trial.add_group_sizes(size);
    }
    return trial;
  }
  const v1::Candidate& candidate =
      job.trials.candidates[static_cast<size_t>(job.trials.current)].candidate;
  trial.set_steps(TrialSteps(candidate));
  return trial;
}

std::string DescribeMeasurement(const JobRecord& job) {
  const Trials& trials = job.trials;
  if (trials.current < 0) {
    return absl::StrCat("probe of ", Counted(static_cast<int64_t>(job.ranks.size()), "worker"));
  }
  return absl::StrCat("trial of ",
                      NameOf(trials.candidates[static_cast<size_t>(trials.current)].candidate));
}

}  // namespace sherd
