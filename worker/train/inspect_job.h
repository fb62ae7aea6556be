#pragma once

#include "absl/status/statusor.h"
#include "sherd/v1/worker.pb.h"
#include "worker/train/trainer.h"

namespace sherd {

// Looks at a job's files as InspectData asks (worker.proto): the folder model.from, whose shape it
// tells, and what InspectJobFiles looks at. Sizes that the job leaves to the folder are 0 in the
// request. One sentence that begins with the field and names the file and what would be right.
absl::StatusOr<v1::DataInspection> InspectJob(const v1::InspectData& request,
                                              const TrainerOptions& options);

}  // namespace sherd
