#include "coordinator/runtime/take_model.h"

#include <string>

#include "coordinator/runtime/invalid_fields.h"
#include "plan/job_spec.h"
#include "plan/model_folder.h"

namespace sherd {

absl::Status TakeModel(const v1::DataInspection& inspection, v1::JobSpec& spec) {
  if (spec.model().from().empty()) return absl::OkStatus();
  v1::ModelSpec whole = inspection.model();
  whole.set_from(spec.model().from());
  if (AwaitsShape(whole)) {
    return absl::FailedPreconditionError(
        "the worker that looked at model.from tells no shape of it: its version does not know "
        "model.from; update the workers");
  }
  if (const v1::InvalidFields different = TakeShape(whole, *spec.mutable_model());
      different.fields_size() > 0) {
    return InvalidFieldsError(different);
  }
  // An empty one means the job's id, which is not chosen yet.
  const std::string dir = spec.checkpoint().dir();
  spec = NormalizeJobSpec(spec);
  const v1::InvalidFields invalid = ValidateJobSpec(spec);
  spec.mutable_checkpoint()->set_dir(dir);
  return invalid.fields_size() > 0 ? InvalidFieldsError(invalid) : absl::OkStatus();
}

}  // namespace sherd
