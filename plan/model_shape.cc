#include "plan/model_shape.h"

#include "common/check.h"

namespace sherd {
namespace {

RotaryShape RotaryOf(const v1::ModelSpec& spec) {
  RotaryShape rotary;
  rotary.theta = spec.rope_theta();
  if (!spec.has_rope_scaling()) return rotary;
  const v1::RopeScaling& scaling = spec.rope_scaling();
  rotary.factor = scaling.factor();
  rotary.low_freq_factor = scaling.low_freq_factor();
  rotary.high_freq_factor = scaling.high_freq_factor();
  rotary.original_context = scaling.original_context();
  return rotary;
}

}  // namespace

ModelShape ShapeOf(const v1::ModelSpec& spec) {
  const bool llama = spec.arch() == v1::ARCHITECTURE_LLAMA;
  SHERD_CHECK(llama || spec.arch() == v1::ARCHITECTURE_GPT2);
  ModelShape shape;
  shape.arch = llama ? Architecture::kLlama : Architecture::kGpt2;
  shape.layers = spec.layers();
  shape.hidden = spec.hidden();
  shape.heads = spec.heads();
  shape.kv_heads = spec.kv_heads();
  shape.ffn = spec.ffn();
  shape.vocab = spec.vocab();
  shape.context = spec.context();
  shape.tie_embeddings = spec.tie_embeddings();
  if (llama) {
    shape.norm_eps = spec.norm_eps();
    shape.rotary = RotaryOf(spec);
  }
  return shape;
}

}  // namespace sherd
