#pragma once

#include <memory>

#include "coordinator/core/state.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// Tells ranks all that they need to train: their groups, and of each whether its data move through
// shared memory or over TCP; the addresses of these groups' members for the one or the other; and
// their shards, which are cut over their data-parallel group where the strategy's row shards
// the optimizer's state, and are whole units where it does not.
class AssignmentBuilder {
 public:
  AssignmentBuilder();
  ~AssignmentBuilder();

  // Of the job's current epoch. The rank must exist, and the workers of all ranks be known to
  // `state`. What an epoch's ranks have in common is computed once for as long as no other epoch is
  // asked about in between.
  v1::Assignment Build(const State& state, const JobRecord& job, int rank);

 private:
  struct World;
  std::unique_ptr<const World> world_;
};

}  // namespace sherd
