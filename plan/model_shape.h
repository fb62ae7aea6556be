#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

enum class Architecture { kGpt2, kLlama };

// Rotary position embedding: base of the frequencies, and the scaling rule of the published Llama
// 3.1 and 3.2 models, of which a factor of 1 changes nothing.
struct RotaryShape {
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;
  friend bool operator==(const RotaryShape&, const RotaryShape&) = default;
};

// A transformer's complete shape: every default and preset filled in, every rule of ValidateJobSpec
// held.
struct ModelShape {
  Architecture arch = Architecture::kGpt2;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  // Heads of keys and values: as many as `heads`, or a divisor of it.
  int64_t kv_heads = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  // The longest sequence; GPT-2's learned positions.
  int64_t context = 0;
  bool tie_embeddings = true;
  // Llama's own.
  double norm_eps = 1e-5;
  RotaryShape rotary;

  int64_t head_size() const { return hidden / heads; }
  // Of one token: all queries, keys and values.
  int64_t qkv_channels() const { return (heads + 2 * kv_heads) * head_size(); }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// From a normalised specification (plan/job_spec.h).
ModelShape ShapeOf(const v1::ModelSpec& spec);

}  // namespace sherd
