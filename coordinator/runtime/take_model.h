#pragma once

#include "absl/status/status.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// Completes a job whose weights come from a folder (model.from) with the shape that a worker read
// there, and looks at the whole specification again; does nothing to another. kInvalidArgument,
// with v1::InvalidFields, for what does not agree with the folder or does not fit its model;
// kFailedPrecondition when the worker told no shape.
absl::Status TakeModel(const v1::DataInspection& inspection, v1::JobSpec& spec);

}  // namespace sherd
