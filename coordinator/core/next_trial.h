#pragma once

#include <cstdint>

#include "coordinator/core/state.h"

namespace sherd {

// Which layouts of a job of strategy auto are tried, how often and how long. Pure.

// It was run, and not struck off since: then it has no figure.
bool IsMeasured(const TriedCandidate& tried);

// The one with the smallest figure; of equals the first. nullptr: none is measured.
const TriedCandidate* Fastest(const Trials& trials);

// The place in trials.candidates of what is tried next; -1: nothing. First the best of each kind,
// then neighbours of the fastest, once each. Then those that may be the fastest take turns: what
// else a machine does makes any of them slow for a while, and none of them fast, so that their
// smallest figures are compared. Fewer and nearer ones are left for every turn, until nothing is
// near the fastest.
int64_t NextTrial(const Trials& trials);

// Steps of a trial of the candidate.
int64_t TrialSteps(const v1::Candidate& candidate);

}  // namespace sherd
