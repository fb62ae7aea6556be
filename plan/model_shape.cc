#include "plan/model_shape.h"

#include "common/check.h"

namespace sherd {

ModelShape ShapeOf(const v1::ModelSpec& spec) {
  SHERD_CHECK(spec.arch() == v1::ARCHITECTURE_GPT2);
  ModelShape shape;
  shape.arch = Architecture::kGpt2;
  shape.layers = spec.layers();
  shape.hidden = spec.hidden();
  shape.heads = spec.heads();
  shape.kv_heads = spec.kv_heads();
  shape.ffn = spec.ffn();
  shape.vocab = spec.vocab();
  shape.context = spec.context();
  shape.tie_embeddings = spec.tie_embeddings();
  return shape;
}

}  // namespace sherd
