#pragma once

#include <string>
#include <vector>

#include "coordinator/core/transition.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// How a job of strategy auto comes to its layout (docs/adr/0011): an epoch that probes its
// machines, epochs that try the most promising candidates for some steps each, and the decision,
// which is kept until the job's world has another size. Nothing of these epochs is kept but
// figures.
//
//   kProbe --figures, or three attempts--> kTrial --no candidate left to try--> kDecided
//
// A measurement whose epoch ends otherwise begins again in the next one, unless the candidate has a
// figure already. A candidate is struck off when a rank says that another attempt would fail alike,
// at a failure of a rank's own that is not in its first attempt, and at the third attempt without
// a figure; without any that could be run the job fails. What is tried is next_trial.h's.

// The job was submitted: it is to be laid out if it is of strategy auto.
void BeginTrials(JobRecord& job);

// Before the job's next epoch forms on `workers`, which trains or measures: what it is for. Gives
// the specification the keys that hold in it, and tells the feed of a decision. False when the job
// has ended, because nothing fits or nothing could be run.
bool PlanLayout(Transition& transition, JobRecord& job, const std::vector<WorkerId>& workers);

// The epoch is formed: of one that measures, and how versions of one that trains are cut.
void NoteEpoch(JobRecord& job);

// A rank of an epoch that measures is done.
void OnMeasured(Transition& transition, JobRecord& job, int rank, const v1::RankChanged& event);
// Another attempt at what it measures would fail in the same way.
void StrikeOff(JobRecord& job, const std::string& why);

// What its ranks are asked to measure.
v1::Trial TrialOf(const JobRecord& job);
// "probes 2 workers", "tries ddp, micro_batch 4 (2 of 6)"
std::string DescribeMeasurement(const JobRecord& job);

}  // namespace sherd
