#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// Keys keep the order in which they are documented (docs/command-line.md).
using Json = nlohmann::ordered_json;

// One event of a job's feed: {"event":"step","step":1,…}.
Json EventJson(const v1::JobEvent& event);

// A normalised specification with the keys of the job file: it reads back as the same one.
Json SpecJson(const v1::JobSpec& spec);

// With the specification and the ranks if the job has them.
Json JobJson(const v1::Job& job);
Json JobsJson(const std::vector<v1::Job>& jobs);
Json WorkerJson(const v1::Worker& worker);
Json WorkersJson(const std::vector<v1::Worker>& workers);

// On one line, without a newline. Numbers read back bit for bit; one that is not finite is null.
// Text that is not UTF-8 is mended.
std::string ToLine(const Json& json);

// The same value as a YAML document, with a newline at its end.
std::string ToYaml(const Json& json);

}  // namespace sherd
