#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sherd/v1/job.pb.h"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// Whether a job of a normalised specification may go on from a checkpoint: its model and tokenizer
// are the same, and so is all that its order of samples depends on (F48): seed, global batch,
// length of sequences, weights and held-out part of the data, and the training text, which has
// `corpus_tokens` tokens; and it trains at least to the checkpoint's step. kFailedPrecondition
// names every key that is in the way, what it was and what it is; also for a checkpoint of weights
// alone (F49). Layouts and strategies never matter.
absl::Status CheckResumable(const CheckpointInfo& info, const v1::JobSpec& spec,
                            int64_t corpus_tokens);

// What else is other than when the checkpoint was written, for the user to know: "train.steps was
// 100 and is 200".
std::vector<std::string> ChangedSettings(const CheckpointInfo& info, const v1::JobSpec& spec);

}  // namespace sherd
