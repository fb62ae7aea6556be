#pragma once

#include "plan/parameters.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Sets what a normalised specification makes of every parameter: its settings, the units that are
// frozen, and the first that is not. Of optimizer.groups the last one whose pattern matches the
// name decides; without one matrices decay by optimizer.weight_decay, and the rest does not.
void ApplySettings(const v1::TrainSpec& train, Inventory& inventory);

}  // namespace sherd
