#pragma once

#include "sherd/v1/job.pb.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// Of a model whose weights come from a folder (model.from).

// Whether the shape is still to be read there: something of it is missing. NormalizeJobSpec fills
// in nothing of such a model, and ValidateJobSpec does not look at its shape.
bool AwaitsShape(const v1::ModelSpec& model);

// Takes the shape over from that of the folder, which is complete. What was given beside `from`
// must agree with it: each that does not is named with both values, and then nothing is taken.
v1::InvalidFields TakeShape(const v1::ModelSpec& folder, v1::ModelSpec& model);

}  // namespace sherd
