#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace sherd {

// Until when each worker is believed to be alive. Knows no clock.
class Leases {
 public:
  void Renew(const WorkerId& worker, absl::Time now, absl::Duration ttl);
  void Remove(const WorkerId& worker);
  // Removes and returns the workers whose lease ended before `now`, by name.
  std::vector<WorkerId> Expire(absl::Time now);
  // Moves every end: for a time in which nobody could have renewed.
  void Postpone(absl::Duration pause);

 private:
  std::map<WorkerId, absl::Time> ends_;
};

}  // namespace sherd
