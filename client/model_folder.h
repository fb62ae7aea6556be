#pragma once

#include "absl/status/status.h"
#include "client/job_file.h"

namespace sherd {

// Takes the shape of a model whose weights come from a folder (model.from) over from the
// config.json that lies there on this machine; does nothing to another job. kInvalidArgument names
// the line of model.from, or that of what does not agree with the folder; kNotFound when it is not
// here.
absl::Status ReadModelFolder(JobFile& file);

}  // namespace sherd
