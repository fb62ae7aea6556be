// Job files: YAML of users.

#include <string>

#include "client/job_file.h"
#include "plan/job_spec.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = sherd::ParseJobFile(sherd::AsText(data, size), "fuzz.yaml", {});
  if (!file.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(file.status()));
    FUZZ_CHECK(!file.status().message().empty());
    return 0;
  }
  const sherd::v1::JobSpec whole = sherd::NormalizeJobSpec(file->spec);
  // Filling in defaults is done once.
  FUZZ_CHECK(sherd::NormalizeJobSpec(whole).SerializeAsString() == whole.SerializeAsString());
  sherd::DescribeInvalidFields(sherd::ValidateJobSpec(whole), *file);
  return 0;
}
