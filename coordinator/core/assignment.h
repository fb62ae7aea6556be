#pragma once

#include <memory>
#include <string>

#include "coordinator/core/state.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// How far a job's feed is.
struct Reported {
  int64_t step = 0;
  int64_t eval_step = 0;
};

// What a process must know to open links to those of an epoch.
std::string SecretOf(const JobRecord& job, Epoch epoch);

// Tells ranks all that they need to train: their groups, and of each whether its data move through
// shared memory or over TCP; the addresses of these groups' members for the one or the other;
// their shards, which are cut over their data-parallel group where the strategy's row shards
// the optimizer's state, and are whole units where it does not; where training goes on, and from
// whom they get what they need for it; and who is to store their shards.
class AssignmentBuilder {
 public:
  AssignmentBuilder();
  ~AssignmentBuilder();

  // Of the job's current epoch. The rank must exist, and the workers of all ranks be known to
  // `state`. Of the processes that hold a part of the version to restore, one that is alive is
  // named: the rank's own worker, else one that shares memory with it, else any; one that the job
  // excludes only when there is no other. What an epoch's
  // ranks have in common is computed once for as long as no other epoch is asked about in between.
  v1::Assignment Build(const State& state, const JobRecord& job, int rank,
                       const Reported& reported);

 private:
  struct World;
  std::unique_ptr<const World> world_;
};

}  // namespace sherd
