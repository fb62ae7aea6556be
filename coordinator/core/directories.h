#pragma once

#include <string>

#include "coordinator/core/state.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// A job other than `id`, in a state that `counts`, whose checkpoint directory is that of `spec`,
// lies in it, or holds it; nullptr when there is none. Such jobs would destroy each other's
// weights. Relative directories begin at the workers' output root: of the roots that known workers
// have, any counts. What symbolic links make of a path only a worker knows.
const JobRecord* FindJobInDirectory(const State& state, const JobId& id, const v1::JobSpec& spec,
                                    bool (*counts)(v1::JobState));

}  // namespace sherd
