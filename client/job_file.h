#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// A job file with its overrides (docs/job-file.md): the specification as written, without defaults,
// and where each of its fields was written.
struct JobFile {
  v1::JobSpec spec;
  // The file's name in errors.
  std::string source;
  // By field, "train.global_batch": "fortunes.yaml:7" or "--set train.global_batch=8".
  std::map<std::string, std::string> origins;
};

// kInvalidArgument with one line for each thing that is wrong: "fortunes.yaml:7: unknown key
// 'stratgy' in parallel; did you mean 'strategy'?". `overrides` are "train.steps=20", taken in
// order after the file.
absl::StatusOr<JobFile> ParseJobFile(absl::string_view text, absl::string_view source,
                                     const std::vector<std::string>& overrides);

// ParseJobFile of a file's content. kNotFound, kPermissionDenied or kInvalidArgument name the path.
absl::StatusOr<JobFile> ReadJobFile(const std::string& path,
                                    const std::vector<std::string>& overrides);

// Where the field was written, or else the section around it, or else the file.
std::string OriginOf(const JobFile& file, absl::string_view field);

// One line for each field: "fortunes.yaml:7: train.global_batch: 10 is not a multiple of …".
std::string DescribeInvalidFields(const v1::InvalidFields& invalid, const JobFile& file);

// kInvalidArgument with DescribeInvalidFields when ValidateJobSpec refuses the specification.
absl::Status CheckJobFile(const JobFile& file);

}  // namespace sherd
