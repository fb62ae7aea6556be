#include "coordinator/core/leases.h"

namespace sherd {

void Leases::Renew(const WorkerId& worker, absl::Time now, absl::Duration ttl) {
  ends_[worker] = now + ttl;
}

void Leases::Remove(const WorkerId& worker) { ends_.erase(worker); }

std::vector<WorkerId> Leases::Expire(absl::Time now) {
  std::vector<WorkerId> expired;
  for (auto entry = ends_.begin(); entry != ends_.end();) {
    if (entry->second < now) {
      expired.push_back(entry->first);
      entry = ends_.erase(entry);
    } else {
      ++entry;
    }
  }
  return expired;
}

void Leases::Postpone(absl::Duration pause) {
  for (auto& [worker, end] : ends_) end += pause;
}

}  // namespace sherd
