#include "plan/tensor_part.h"

#include <algorithm>

#include "common/check.h"

namespace sherd {

TensorPlace TensorPlaceOf(const v1::ParallelSpec& parallel, int index) {
  return {.degree = static_cast<int>(parallel.tensor()),
          .index = index,
          .sequence = parallel.sequence_parallel() && parallel.tensor() > 1};
}

ModelPart PartOf(const ModelShape& shape, const TensorPlace& place) {
  const int64_t degree = place.degree;
  const int64_t index = place.index;
  SHERD_CHECK(degree >= 1 && index >= 0 && index < degree);
  SHERD_CHECK(shape.heads % degree == 0 && shape.ffn % degree == 0);
  SHERD_CHECK(shape.kv_heads % degree == 0 || degree % shape.kv_heads == 0);
  ModelPart part;
  part.place = place;
  part.heads = shape.heads / degree;
  part.first_head = index * part.heads;
  part.kv_copies = static_cast<int>(std::max<int64_t>(1, degree / shape.kv_heads));
  part.kv_heads = shape.kv_heads * part.kv_copies / degree;
  part.first_kv_head = index / part.kv_copies * part.kv_heads;
  part.head_size = shape.head_size();
  part.ffn = shape.ffn / degree;
  part.vocab = (shape.vocab + degree - 1) / degree;
  part.vocabulary = {std::min(index * part.vocab, shape.vocab),
                     std::min((index + 1) * part.vocab, shape.vocab)};
  return part;
}

}  // namespace sherd
