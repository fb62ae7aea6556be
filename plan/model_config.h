#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/model_shape.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// config.json of a folder of weights as the common Python stack (transformers) writes it, of GPT-2
// and Llama: the model's shape, and whatever would make the model another than ours.

inline constexpr char kModelConfigFile[] = "config.json";
inline constexpr int64_t kMaxModelConfigBytes = 1 << 20;

// The complete shape, every rule of ValidateJobSpec held. Settings of training (dropout) and of
// generation are passed over. kInvalidArgument names the key and what is supported.
absl::StatusOr<v1::ModelSpec> ParseModelConfig(absl::string_view text);

// Such a file for a model whose weights are stored as `torch_dtype`: "float32", "bfloat16" or
// "float16".
std::string FormatModelConfig(const ModelShape& shape, absl::string_view torch_dtype);

}  // namespace sherd
