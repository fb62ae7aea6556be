#pragma once

#include "absl/strings/string_view.h"
#include "coordinator/core/state.h"
#include "coordinator/runtime/job_feed.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// What users see of a job: in lists without, alone with specification and ranks.
enum class JobDetail { kSummary, kFull };
v1::Job ViewJob(const JobRecord& job, const JobFeed& feed, JobDetail detail);

// "idle", "busy", "draining", "drained" or "lost".
absl::string_view StatusOf(const WorkerState& worker);
v1::Worker ViewWorker(const WorkerState& worker);

}  // namespace sherd
