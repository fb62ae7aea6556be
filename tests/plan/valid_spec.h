// A specification that is valid, and what is wrong with one that is not.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"

namespace sherd {

// The least that a job needs.
inline v1::JobSpec ValidSpec() {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_model()->set_preset("gpt2-bytes");
  spec.mutable_data()->add_train("corpus.txt");
  spec.mutable_train()->set_steps(10);
  return spec;
}

// "field: what is wrong", in the order of the answer.
inline std::vector<std::string> Violations(const v1::JobSpec& spec) {
  std::vector<std::string> violations;
  const v1::InvalidFields invalid = ValidateJobSpec(NormalizeJobSpec(spec));
  for (const v1::InvalidField& field : invalid.fields()) {
    violations.push_back(absl::StrCat(field.field(), ": ", field.description()));
  }
  return violations;
}

}  // namespace sherd
