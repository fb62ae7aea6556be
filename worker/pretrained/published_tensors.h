#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/model_shape.h"

namespace sherd {

// How a tensor of a model is published by the common Python stack.
struct PublishedTensor {
  // Ours (plan/parameters.h): "h.0.attn.c_attn.weight".
  std::string parameter;
  // Theirs: "transformer.h.0.attn.c_attn.weight".
  std::string name;
  // Theirs.
  std::vector<int64_t> shape;
  // GPT-2's linear weights are published as (in, out), and stored here as (out, in).
  bool transposed = false;

  int64_t elements() const;
};

// All tensors of the model, in the order of WeightsOf; a tied head is none.
std::vector<PublishedTensor> PublishedTensorsOf(const ModelShape& shape);

// Our name of a published tensor, with or without the prefix that the language model has and the
// model without a head has not: "transformer." of GPT-2, "model." of Llama.
std::string ParameterNameOf(Architecture arch, absl::string_view published);

// Whether what we would call `parameter` is no weight but a constant that older versions stored:
// masks of GPT-2, rotary frequencies of Llama.
bool IsBuffer(Architecture arch, absl::string_view parameter);

inline constexpr char kHeadParameter[] = "lm_head.weight";

// "[3, 4]".
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace sherd
