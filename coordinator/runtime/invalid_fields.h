#pragma once

#include "absl/status/status.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// kInvalidArgument whose message names every field and whose payload is `fields`, under its type's
// URL, for the error's details. `fields` must not be empty.
absl::Status InvalidFieldsError(const v1::InvalidFields& fields);

}  // namespace sherd
