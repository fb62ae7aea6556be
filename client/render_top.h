#pragma once

#include <string>
#include <vector>

#include "client/render_json.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// A moment of a cluster.
struct Cluster {
  // Jobs that have not ended, in full; then some of those that have, newest first.
  std::vector<v1::Job> jobs;
  std::vector<v1::Worker> workers;
};

// What a person watches: workers by status; jobs with their speed, memory and last recovery; ranks
// of those that have any.
std::string TopText(const Cluster& cluster);
// {"workers": {"idle": 1, …}, "jobs": […]}, jobs as `sherd get` shows them.
Json TopJson(const Cluster& cluster);

}  // namespace sherd
