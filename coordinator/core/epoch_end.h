#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/transition.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace sherd {

// How a job's epoch ends, up to the moment at which everybody in it has stopped and said what they
// hold.

// So many epochs in a row without a step are enough to see that the next one would have none.
inline constexpr int kMostFruitless = 3;

struct EpochEnd {
  EndKind kind = EndKind::kNone;
  // A sentence.
  std::string cause;
  // Somebody only suspects it: a better cause may come.
  bool suspicion = false;
  // It happened so long before it was known.
  int64_t unnoticed_ms = 0;
};

// The job's epoch has ended, unplanned or by plan, and everybody stopped or was told to at once.
bool HasEnded(const JobRecord& job);

// The epoch ends unplanned: the job is RECOVERING, every rank is told to stop, the holders are
// asked. Of an epoch that has ended already, only a suspicion is replaced.
void EndEpoch(Transition& transition, JobRecord& job, EpochEnd end);

// A running epoch ends by plan: the job is RECOVERING, and its ranks stop together after a step.
void PauseEpoch(Transition& transition, JobRecord& job, std::string reason);

// All ranks of an epoch that only saved have stopped.
void EndSavingEpoch(Transition& transition, JobRecord& job);

// All ranks of an epoch that measured are done; the sentence says what came of it.
void EndMeasuringEpoch(Transition& transition, JobRecord& job, std::string sentence);

// Keeps what a live worker said that it holds, in place of what it said before.
void RecordAnswer(JobRecord& job, const WorkerId& worker, Incarnation incarnation,
                  const google::protobuf::RepeatedPtrField<v1::Holding>& holdings);

// After somebody has left an epoch that is ending: what follows when nobody is missing.
void NoteLeaving(Transition& transition, JobRecord& job);

// A rank has finished, so the job's output is durable.
bool AnyFinished(const JobRecord& job);
// Of such a job: succeeds when no rank works any more, whatever became of the others.
void SucceedWhenDone(Transition& transition, JobRecord& job);

}  // namespace sherd
