#include "coordinator/runtime/invalid_fields.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sherd {

absl::Status InvalidFieldsError(const v1::InvalidFields& fields) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrJoin(fields.fields(), "; ", [](std::string* out, const v1::InvalidField& field) {
        absl::StrAppend(out, field.field(), ": ", field.description());
      }));
  status.SetPayload(absl::StrCat("type.googleapis.com/", fields.GetTypeName()),
                    absl::Cord(fields.SerializeAsString()));
  return status;
}

}  // namespace sherd
