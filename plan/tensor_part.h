#pragma once

#include <cstdint>

#include "plan/element_range.h"
#include "plan/model_shape.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// A rank's place in its tensor-parallel group: member `index` of `degree`.
struct TensorPlace {
  int degree = 1;
  int index = 0;
  // Sequence parallelism: each member holds its equal part of the rows of the residual stream.
  bool sequence = false;
  friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

// Member `index` of the group that a normalised specification asks for.
TensorPlace TensorPlaceOf(const v1::ParallelSpec& parallel, int index);

// What one member of a tensor-parallel group holds and computes of a model (Shoeybi et al. 2019;
// with sequence parallelism Korthikanti et al. 2022). All members have equal sizes.
struct ModelPart {
  TensorPlace place;
  // Query heads, adjacent ones; and the heads of keys and values that these read. Where there are
  // fewer of the latter than members, kv_copies adjacent members hold the same one.
  int64_t heads = 0;
  int64_t first_head = 0;
  int64_t kv_heads = 0;
  int64_t first_kv_head = 0;
  int kv_copies = 1;
  int64_t head_size = 0;
  int64_t ffn = 0;
  // Rows of the token embedding and of the head: `vocab` are stored, and these are those of the
  // vocabulary among them; the rest is padding and stays zero.
  int64_t vocab = 0;
  ElementRange vocabulary;

  // Of one token: the member's queries, keys and values; and its attention's output.
  int64_t qkv_channels() const { return (heads + 2 * kv_heads) * head_size; }
  int64_t attention_channels() const { return heads * head_size; }
  // Of `rows` rows of a micro-batch, those of the residual stream that the member holds, and the
  // first of them.
  int64_t ResidualRows(int64_t rows) const { return place.sequence ? rows / place.degree : rows; }
  int64_t FirstResidualRow(int64_t rows) const {
    return place.sequence ? place.index * (rows / place.degree) : 0;
  }
};

// `place.degree` divides heads and ffn, and divides kv_heads or is a multiple of them.
ModelPart PartOf(const ModelShape& shape, const TensorPlace& place);

}  // namespace sherd
