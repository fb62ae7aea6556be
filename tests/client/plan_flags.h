#pragma once

#include <string>
#include <vector>

#include "client/plan_request.h"
#include "gtest/gtest.h"
#include "plan/plan_report.h"

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

inline PlanFlags Comparison(const char* device_memory) {
  PlanFlags flags = SevenBillion();
  flags.strategy.reset();
  flags.compare = true;
  flags.device_memory = device_memory;
  return flags;
}

inline std::string Error(const PlanFlags& flags) {
  const absl::StatusOr<PlanRequest> request = ReadPlanFlags(flags);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(request.status().message());
}

inline PlanRequest Read(const PlanFlags& flags) {
  const absl::StatusOr<PlanRequest> request = ReadPlanFlags(flags);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.value_or(PlanRequest());
}

inline std::vector<PlanReport> TheoryReports(const PlanRequest& request) {
  std::vector<PlanReport> reports;
  for (const TheoryQuestion& question : request.theory) {
    reports.push_back(ReportOnTheory(question, request.limits, request.known_bandwidth));
  }
  return reports;
}

}  // namespace sherd
