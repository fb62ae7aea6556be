#include "plan/activations.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kMostHeadChunks = 4;
constexpr int64_t kLeastChunkRows = 256;
constexpr int64_t kChunkRowUnit = 64;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The widest inner layer whose output or gradient is not kept, in channels a row.
int64_t InnerChannels(const ModelPart& part) { return std::max(part.ffn, part.qkv_channels()); }

int64_t Sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// What a block's backward reads beside the block's input, in numbers a row of all: queries, keys
// and values, the attention's log-sum-exp a head and output, and the MLP before GELU (F) or gate
// and up (2F); all of the member's part.
std::vector<int64_t> InnerNumbers(const ModelShape& shape, const ModelPart& part) {
  const bool llama = shape.arch == Architecture::kLlama;
  return {part.qkv_channels(), part.heads, part.attention_channels(), (llama ? 2 : 1) * part.ffn};
}

// And in numbers a row of the residual stream: the stream behind the attention (C), and of two
// norms the deviations and with GPT-2 means.
std::vector<int64_t> StreamNumbers(const ModelShape& shape) {
  if (shape.arch == Architecture::kLlama) return {1, shape.hidden, 1};
  return {1, 1, shape.hidden, 1, 1};
}

// Bytes of what finds a place in `room`: for each block its input and what else its backward reads,
// part by part; and the input of the head.
int64_t PlacedBytes(const ModelShape& shape, const ModelPart& part, int64_t rows,
                    KeptActivations kept, GradientRoom& room) {
  int64_t placed = 0;
  const auto place = [&](int64_t layer, int64_t numbers) {
    const int64_t bytes = kFloatBytes * numbers;
    if (room.Take(static_cast<int>(layer) + 1, bytes)) placed += bytes;
  };
  const int64_t stream_rows = part.ResidualRows(rows);
  const std::vector<int64_t> inner = InnerNumbers(shape, part);
  const std::vector<int64_t> stream = StreamNumbers(shape);
  for (int64_t layer = 0; layer <= shape.layers; ++layer) {
    place(layer, stream_rows * shape.hidden);
    // One block's, that all share, are read until the first block's backward.
    const bool block = kept == KeptActivations::kEverything ? layer < shape.layers : layer == 0;
    if (!block) continue;
    for (const int64_t numbers : inner) place(layer, rows * numbers);
    for (const int64_t numbers : stream) place(layer, stream_rows * numbers);
  }
  return placed;
}

}  // namespace

int64_t HeadChunkRows(const ModelPart& part, int64_t rows) {
  if (part.vocab <= InnerChannels(part)) return rows;
  const int64_t share = (rows + kMostHeadChunks - 1) / kMostHeadChunks;
  return std::min(rows, std::max(kLeastChunkRows, RoundUp(share, kChunkRowUnit)));
}

// In the arena: what the members sum or gather. Rows of C before and after a sum, and with sequence
// parallelism the gradient of the residual stream; the statistics of a chunk of logits.
int64_t TensorArenaActivationBytes(const ModelShape& shape, const ModelPart& part, int64_t batch,
                                   int64_t tokens, KeptActivations kept) {
  if (part.place.degree == 1) return 0;
  const int64_t rows = batch * tokens;
  const bool gradient = part.place.sequence && kept != KeptActivations::kNothing;
  const int64_t row_bytes = kFloatBytes * shape.hidden;
  return RoundUp(rows * row_bytes, kCacheLine) +
         (gradient ? RoundUp(part.ResidualRows(rows) * row_bytes, kCacheLine) : 0) +
         RoundUp(HeadChunkRows(part, rows) * kLogitStatisticsBytes, kCacheLine);
}

std::optional<int64_t> PlaceLogits(const ModelPart& part, int64_t rows, GradientRoom& room) {
  const int64_t wide = kFloatBytes * rows * InnerChannels(part);
  const int64_t logits = kFloatBytes * HeadChunkRows(part, rows) * part.vocab;
  // What is beyond the last block's gradients could have been other activations' place.
  if (wide >= std::min(logits, room.end_bytes())) return std::nullopt;
  return room.TakeEnd(logits);
}

// Beside the blocks, per row of the residual stream: the input of every block and of the head (C
// each), the last norm's deviation, and with GPT-2 mean; backward adds its gradient (C). Without it
// all blocks and the head share one input. What lies in `room` is not counted. Per row of all: a
// working row of C, in a group a second one, and one that is the MLP's activation or gradients
// inside a block. The last is also a chunk's logits. Llama's rotary table has a head's numbers for
// every position of a sequence. In a group the statistics of a chunk of logits are gathered.
int64_t PredictActivationBytes(const ModelShape& shape, const ModelPart& part, int64_t batch,
                               int64_t tokens, KeptActivations kept, GradientRoom room) {
  const bool llama = shape.arch == Architecture::kLlama;
  const bool trains = kept != KeptActivations::kNothing;
  const bool grouped = part.place.degree > 1;
  const int64_t rows = batch * tokens;
  const int64_t chunk_rows = HeadChunkRows(part, rows);
  const int64_t blocks = kept == KeptActivations::kEverything ? shape.layers : 1;
  const int64_t inputs = trains ? shape.layers + 1 : 1;
  const bool own_gradient = trains && !part.place.sequence;
  const int64_t stream_row = blocks * Sum(StreamNumbers(shape)) + inputs * shape.hidden +
                             (llama ? 1 : 2) + (own_gradient ? shape.hidden : 0);
  const int64_t row = blocks * Sum(InnerNumbers(shape, part)) + shape.hidden;
  const bool apart = trains && PlaceLogits(part, rows, room).has_value();
  const int64_t wide = std::max(rows * InnerChannels(part), apart ? 0 : chunk_rows * part.vocab);
  const int64_t placed = trains ? PlacedBytes(shape, part, rows, kept, room) : 0;
  const int64_t table = llama ? tokens * shape.head_size() : 0;
  const int64_t statistics = grouped ? part.place.degree * chunk_rows * kLogitStatisticsBytes : 0;
  return kFloatBytes * (part.ResidualRows(rows) * stream_row + rows * row + wide + table) - placed +
         statistics + TensorArenaActivationBytes(shape, part, batch, tokens, kept);
}

}  // namespace sherd
