#include "coordinator/core/next_trial.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/candidates.h"

namespace sherd {
namespace {

// Candidates of different kinds that are tried; then so many more around the fastest of them.
constexpr size_t kMostTrials = 6;
constexpr size_t kMostRefinements = 2;

// Who takes part in a turn: of those that took at most `near` times as long as the fastest the
// `most` fastest.
struct Turn {
  size_t most = 0;
  double near = 0;
};
// After the first trial of all. Figures of two trials are nearer to the truth than those of one.
constexpr Turn kTurns[] = {{4, 1.5}, {3, 1.2}, {2, 1.08}};
// A turn with which all turns would take longer is left out: what takes long is not slow by an
// accident.
constexpr double kMostTurnSeconds = 60;

// A trial is to take so long, in at least and at most so many steps.
constexpr double kTrialSeconds = 1;
constexpr int64_t kLeastSteps = 4;
constexpr int64_t kMostSteps = 100;

double FigureOf(const TriedCandidate& tried) { return tried.candidate.measured_step_seconds(); }

// It needs no first trial.
bool IsSettled(const TriedCandidate& tried) { return IsMeasured(tried) || !tried.failure.empty(); }

// Places of those that take part in a turn, ascending.
std::vector<int64_t> TakingPart(const Trials& trials, const Turn& turn) {
  std::vector<int64_t> places;
  for (size_t at = 0; at < trials.candidates.size(); ++at) {
    if (IsMeasured(trials.candidates[at])) places.push_back(static_cast<int64_t>(at));
  }
  const auto figure = [&trials](int64_t at) {
    return FigureOf(trials.candidates[static_cast<size_t>(at)]);
  };
  std::stable_sort(places.begin(), places.end(),
                   [&](int64_t a, int64_t b) { return figure(a) < figure(b); });
  size_t count = 0;
  while (count < std::min(places.size(), turn.most) &&
         figure(places[count]) <= turn.near * figure(places.front())) {
    ++count;
  }
  places.resize(count);
  std::sort(places.begin(), places.end());
  return places;
}

// Of the steps of so many trials of each that took part in turns before, and of one more of those
// that take part now.
double SecondsWith(const Trials& trials, int64_t turns_before, const std::vector<int64_t>& now) {
  const auto seconds = [](const TriedCandidate& tried, int64_t times) {
    return static_cast<double>(times * TrialSteps(tried.candidate)) * FigureOf(tried);
  };
  double sum = 0;
  for (const TriedCandidate& tried : trials.candidates) {
    if (!IsMeasured(tried)) continue;
    sum += seconds(tried, std::min(tried.attempts - 1, turns_before));
  }
  for (const int64_t at : now) sum += seconds(trials.candidates[static_cast<size_t>(at)], 1);
  return sum;
}

// The next one of the turns. An attempt that brought nothing is one all the same: workers that die
// would have no end of them.
int64_t NextOfTurns(const Trials& trials) {
  int64_t before = 0;
  for (const Turn& turn : kTurns) {
    const std::vector<int64_t> places = TakingPart(trials, turn);
    if (places.size() <= 1 || SecondsWith(trials, before, places) > kMostTurnSeconds) return -1;
    ++before;
    for (const int64_t at : places) {
      if (trials.candidates[static_cast<size_t>(at)].attempts <= before) return at;
    }
  }
  return -1;
}

}  // namespace

bool IsMeasured(const TriedCandidate& tried) { return FigureOf(tried) > 0; }

const TriedCandidate* Fastest(const Trials& trials) {
  const TriedCandidate* fastest = nullptr;
  for (const TriedCandidate& tried : trials.candidates) {
    if (!IsMeasured(tried)) continue;
    if (fastest == nullptr || FigureOf(tried) < FigureOf(*fastest)) fastest = &tried;
  }
  return fastest;
}

int64_t NextTrial(const Trials& trials) {
  std::vector<v1::Candidate> candidates;
  for (const TriedCandidate& tried : trials.candidates) candidates.push_back(tried.candidate);
  const std::vector<size_t> shortlist = Shortlist(candidates, kMostTrials);
  // With no other there is nothing to compare.
  if (shortlist.size() <= 1) return -1;
  for (const size_t at : shortlist) {
    if (!IsSettled(trials.candidates[at])) return static_cast<int64_t>(at);
  }
  const TriedCandidate* fastest = Fastest(trials);
  if (fastest == nullptr) return -1;
  const auto settled = static_cast<size_t>(
      std::count_if(trials.candidates.begin(), trials.candidates.end(), IsSettled));
  if (settled < shortlist.size() + kMostRefinements) {
    const auto centre = static_cast<size_t>(fastest - trials.candidates.data());
    for (const size_t at : Neighbours(candidates, centre)) {
      if (!IsSettled(trials.candidates[at])) return static_cast<int64_t>(at);
    }
  }
  return NextOfTurns(trials);
}

int64_t TrialSteps(const v1::Candidate& candidate) {
  const double known = candidate.measured_step_seconds() > 0 ? candidate.measured_step_seconds()
                                                             : candidate.predicted_step_seconds();
  const double steps = kTrialSeconds / std::max(1e-6, known);
  return std::clamp<int64_t>(static_cast<int64_t>(std::min(steps, 1e6)), kLeastSteps, kMostSteps);
}

}  // namespace sherd
