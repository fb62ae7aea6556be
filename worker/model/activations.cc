#include "worker/model/activations.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kCacheLine = 64;
static_assert(sizeof(LogitStatistics) == kLogitStatisticsBytes);

}  // namespace

Activations::Activations(const ModelShape& shape, const ModelPart& part, int64_t batch,
                         int64_t tokens, KeptActivations kept, std::byte* arena, MemoryMeter& meter,
                         SpareMemory spare)
    : meter_(meter), spare_(std::move(spare)), arena_(arena) {
  const int64_t rows = batch * tokens;
  const int64_t stream_rows = part.ResidualRows(rows);
  const bool trains = kept != KeptActivations::kNothing;
  const bool everything = kept == KeptActivations::kEverything;
  if (!trains) spare_ = {};
  const int64_t logits = HeadChunkRows(part, rows) * part.vocab;
  const std::optional<int64_t> place = PlaceLogits(part, rows, spare_.room);
  if (place) logits_ = reinterpret_cast<float*>(spare_.gradients + *place);
  for (int64_t layer = 0; layer <= (trains ? shape.layers : 0); ++layer) {
    residuals_.push_back(AllocateFor(layer, stream_rows * shape.hidden));
    // Where all share one block's, the first block's backward is the last to read them.
    const bool block = everything ? layer < shape.layers : layer == 0;
    if (block) AllocateBlock(shape, part, layer, rows);
  }
  if (shape.arch == Architecture::kGpt2) final_mean_ = Allocate(stream_rows);
  final_rstd_ = Allocate(stream_rows);
  if (trains && !part.place.sequence) d_residual_ = Allocate(rows * shape.hidden);
  normed_ = Allocate(rows * shape.hidden);
  narrow_ = normed_;
  if (arena_ != nullptr) PlaceInArena(shape, part, rows, trains);
  wide_ = Allocate(
      std::max({rows * part.ffn, rows * part.qkv_channels(), logits_ == nullptr ? logits : 0}));
  if (logits_ == nullptr) logits_ = wide_;
}

std::byte* Activations::AllocateBytes(int64_t bytes) {
  buffers_.emplace_back(meter_, Pool::kActivations, bytes);
  return buffers_.back().data();
}

float* Activations::Allocate(int64_t elements) {
  return reinterpret_cast<float*>(AllocateBytes(elements * kFloatBytes));
}

float* Activations::AllocateFor(int64_t layer, int64_t elements) {
  const std::optional<int64_t> place =
      spare_.room.Take(static_cast<int>(layer) + 1, elements * kFloatBytes);
  return place ? reinterpret_cast<float*>(spare_.gradients + *place) : Allocate(elements);
}

std::byte* Activations::TakeArena(int64_t bytes) {
  const int64_t taken = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  std::byte* const begin = arena_ + arena_bytes_;
  arena_bytes_ += taken;
  meter_.Allocated(Pool::kActivations, taken);
  return begin;
}

void Activations::PlaceInArena(const ModelShape& shape, const ModelPart& part, int64_t rows,
                               bool trains) {
  const int64_t row_bytes = shape.hidden * kFloatBytes;
  narrow_ = reinterpret_cast<float*>(TakeArena(rows * row_bytes));
  if (trains && part.place.sequence) {
    d_residual_ = reinterpret_cast<float*>(TakeArena(part.ResidualRows(rows) * row_bytes));
  }
  const int64_t statistics_bytes = HeadChunkRows(part, rows) * kLogitStatisticsBytes;
  statistics_ = reinterpret_cast<LogitStatistics*>(TakeArena(statistics_bytes));
  gathered_statistics_ =
      reinterpret_cast<LogitStatistics*>(AllocateBytes(part.place.degree * statistics_bytes));
}

void Activations::AllocateBlock(const ModelShape& shape, const ModelPart& part, int64_t layer,
                                int64_t rows) {
  const bool gpt2 = shape.arch == Architecture::kGpt2;
  const int64_t stream_rows = part.ResidualRows(rows);
  const auto allocate = [&](int64_t elements) { return AllocateFor(layer, elements); };
  BlockActivations block;
  block.qkv = allocate(rows * part.qkv_channels());
  block.lse = allocate(rows * part.heads);
  block.attention = allocate(rows * part.attention_channels());
  block.mlp = allocate(rows * (gpt2 ? part.ffn : 2 * part.ffn));
  if (gpt2) block.norm_1_mean = allocate(stream_rows);
  block.norm_1_rstd = allocate(stream_rows);
  block.middle = allocate(stream_rows * shape.hidden);
  if (gpt2) block.norm_2_mean = allocate(stream_rows);
  block.norm_2_rstd = allocate(stream_rows);
  blocks_.push_back(block);
}

}  // namespace sherd
