#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

enum class Architecture { kGpt2 };

// A transformer's complete shape: every default and preset filled in, every rule of ValidateJobSpec
// held.
struct ModelShape {
  Architecture arch = Architecture::kGpt2;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  // Learned positions.
  int64_t context = 0;
  bool tie_embeddings = true;

  int64_t head_size() const { return hidden / heads; }
};

// From a normalised specification (plan/job_spec.h).
ModelShape ShapeOf(const v1::ModelSpec& spec);

}  // namespace sherd
