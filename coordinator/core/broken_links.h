#pragma once

#include "coordinator/core/transition.h"

namespace sherd {

// When everybody has left an epoch that only links ended, and both ends of each are alive. Of two
// ranks, the one that more others complain of takes no part in the job any more. A rank and a
// process that was to store its shard, or to give it one, are not brought together again; who is in
// a second such link, or in one that could not be avoided, takes no part any more either. Of an
// epoch in which a rank failed by itself, only the link that was heard of before that counts.
void ExcludeBrokenLinks(Transition& transition, JobRecord& job);

}  // namespace sherd
