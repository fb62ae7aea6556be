#pragma once

#include <cstdint>
#include <string>

#include "sherd/v1/events.pb.h"

namespace sherd {

// What happened to a job, as a sentence for the person who watches. Texts of others are printable.

// "epoch 2 with 3 workers goes on after step 17; recovered in 1.24 s (detect 0.01, …): rank 1 …".
std::string EpochSentence(const v1::EpochReport& epoch);
std::string RollbackSentence(const v1::Rollback& rollback);
std::string CheckpointSentence(const v1::CheckpointReport& checkpoint);
std::string WarningSentence(const v1::Warning& warning);
// Of any event; of a job of `steps` steps.
std::string EventSentence(const v1::JobEvent& event, int64_t steps);

}  // namespace sherd
