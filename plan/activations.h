#pragma once

#include <cstdint>
#include <optional>

#include "plan/gradient_room.h"
#include "plan/model_shape.h"
#include "plan/tensor_part.h"

namespace sherd {

// What of a forward pass is kept for the backward pass.
enum class KeptActivations {
  kEverything,   // all that backward reads of every block
  kBlockInputs,  // every block's input; backward computes the rest again, a block at a time
  kNothing,      // there is no backward pass
};

// The head computes logits, loss and gradients so many rows at a time of a micro-batch's `rows`,
// the last time maybe fewer. All at once unless that would make logits the widest of activations;
// then in at most four parts, so that a gradient stored in bf16 is rounded at most four times.
// Never falls as `rows` grows.
int64_t HeadChunkRows(const ModelPart& part, int64_t rows);

// Bytes that a member keeps of a row's logits for the other members.
inline constexpr int64_t kLogitStatisticsBytes = 3 * 4;

// A place for the logits of a chunk, if that takes less memory than their sharing one with the
// widest activation inside a block: then the last block's gradients come to lie there.
std::optional<int64_t> PlaceLogits(const ModelPart& part, int64_t rows, GradientRoom& room);

// Predicts, to the byte, what a member of a tensor-parallel group keeps in Pool::kActivations for
// micro-batches of `batch` sequences of `tokens` tokens: beside `room`, where there is a backward
// pass. `part` is of `shape`.
int64_t PredictActivationBytes(const ModelShape& shape, const ModelPart& part, int64_t batch,
                               int64_t tokens, KeptActivations kept, GradientRoom room = {});

// Those of them that lie in the arena of the tensor-parallel group, a multiple of 64; none in a
// group of one.
int64_t TensorArenaActivationBytes(const ModelShape& shape, const ModelPart& part, int64_t batch,
                                   int64_t tokens, KeptActivations kept);

}  // namespace sherd
