#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/plan_report.h"
#include "plan/theory.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// What `sherd plan` was told, as typed; "" and nothing: not given.
struct PlanFlags {
  std::string job_file;
  std::vector<std::string> overrides;
  bool explain = false;
  bool compare = false;
  std::optional<std::string> rank;
  std::optional<std::string> workers;
  // Instead of a job file.
  std::optional<std::string> params;
  std::optional<std::string> strategy;
  std::optional<std::string> shard_group;
  std::optional<std::string> zero1_gradients;
  std::optional<std::string> reshard_after_forward;
  std::optional<std::string> rounds;
  std::optional<std::string> compute;
  std::optional<std::string> grad;
  // Limits.
  std::optional<std::string> device_memory;
  std::optional<std::string> host_memory;
  std::optional<std::string> workers_per_host;
  std::optional<std::string> threads;
  // The cost model.
  std::optional<std::string> profile;
  std::optional<std::string> flops;
  std::optional<std::string> bandwidth;
  std::optional<std::string> message_seconds;
  std::optional<std::string> optimizer_seconds;
  std::optional<std::string> overlap;
};

// What is asked, checked; a job file is not read yet.
struct PlanRequest {
  int64_t workers = 0;
  int threads = 1;  // compute threads of a worker
  // The only rank to show, with its groups and shards; below `workers`, yet not perhaps of the
  // job's world.
  std::optional<int> rank;
  MemoryLimits limits;
  // The profile's name with what was changed of it: "cpu", "h100 with --flops 3e+14".
  std::string cost_source;
  CostModel cost;
  // The cost model's, if anything was said about it.
  std::optional<double> known_bandwidth;
  // Without a job file: one question, or one for each strategy.
  std::vector<TheoryQuestion> theory;
};

// kInvalidArgument with one sentence: a missing or contradictory flag, or a value that is not
// usable.
absl::StatusOr<PlanRequest> ReadPlanFlags(const PlanFlags& flags);

}  // namespace sherd
