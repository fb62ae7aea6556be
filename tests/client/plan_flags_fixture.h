#pragma once

#include "client/plan_request.h"
#include "gtest/gtest.h"

namespace sherd {

inline PlanFlags SevenBillion() {
  PlanFlags flags;
  flags.params = "7e9";
  flags.workers = "4";
  flags.strategy = "zero3";
  return flags;
}

inline PlanFlags OfAFile() {
  PlanFlags flags;
  flags.job_file = "job.yaml";
  flags.workers = "4";
  return flags;
}

inline PlanRequest Read(const PlanFlags& flags) {
  const absl::StatusOr<PlanRequest> request = ReadPlanFlags(flags);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.value_or(PlanRequest());
}

}  // namespace sherd
