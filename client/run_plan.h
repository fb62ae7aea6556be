#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/commands.h"
#include "client/job_file.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Where a local run reads and writes. All paths are absolute.
struct RunPlan {
  // The job file's, with its data paths absolute and a place for the weights.
  v1::JobSpec spec;
  std::string data_root;
  // Everything that the run leaves: logs, and weights/ unless checkpoint.dir says otherwise.
  std::string output_root;
  std::string log_directory;
};

// Touches no file. `working_directory` is absolute.
RunPlan PlanRun(const RunOptions& options, const JobFile& file,
                const std::string& working_directory);

// kInvalidArgument when a path cannot be sent (it is not UTF-8 text) or --data-root is no
// directory.
absl::Status CheckPaths(const RunOptions& options, const RunPlan& plan,
                        const std::string& working_directory);

// How many of `workers` would train a normalised job; adds to `idle` a sentence on those that would
// not.
int64_t WorldOf(const v1::JobSpec& spec, int64_t workers, std::vector<std::string>& idle);

// What a host can bear.
inline constexpr int64_t kMostLocalWorkers = 1024;
// Whether so many workers suffice for the job, and are no more than `most`.
absl::Status CheckWorkerCount(int64_t workers, int64_t most, const v1::JobSpec& spec);

}  // namespace sherd
