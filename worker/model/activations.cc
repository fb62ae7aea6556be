#include "worker/model/activations.h"

#include <algorithm>

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kCacheLine = 64;
static_assert(sizeof(LogitStatistics) == kLogitStatisticsBytes);

}  // namespace

Activations::Activations(const ModelShape& shape, const ModelPart& part, int64_t batch,
                         int64_t tokens, KeptActivations kept, std::byte* arena, MemoryMeter& meter)
    : meter_(meter), arena_(arena) {
  const int64_t rows = batch * tokens;
  const int64_t stream_rows = part.ResidualRows(rows);
  const bool trains = kept != KeptActivations::kNothing;
  const int64_t blocks = kept == KeptActivations::kEverything ? shape.layers : 1;
  const int64_t residuals = trains ? shape.layers + 1 : 1;
  for (int64_t i = 0; i < blocks; ++i) blocks_.push_back(AllocateBlock(shape, part, rows));
  for (int64_t i = 0; i < residuals; ++i) {
    residuals_.push_back(Allocate(stream_rows * shape.hidden));
  }
  if (shape.arch == Architecture::kGpt2) final_mean_ = Allocate(stream_rows);
  final_rstd_ = Allocate(stream_rows);
  if (trains && !part.place.sequence) d_residual_ = Allocate(rows * shape.hidden);
  normed_ = Allocate(rows * shape.hidden);
  narrow_ = normed_;
  if (arena_ != nullptr) PlaceInArena(shape, part, rows, trains);
  wide_or_logits_ = Allocate(std::max(
      {rows * part.ffn, rows * part.qkv_channels(), HeadChunkRows(part, rows) * part.vocab}));
}

std::byte* Activations::AllocateBytes(int64_t bytes) {
  buffers_.emplace_back(meter_, Pool::kActivations, bytes);
  return buffers_.back().data();
}

float* Activations::Allocate(int64_t elements) {
  return reinterpret_cast<float*>(AllocateBytes(elements * kFloatBytes));
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

BlockActivations Activations::AllocateBlock(const ModelShape& shape, const ModelPart& part,
                                            int64_t rows) {
  const bool gpt2 = shape.arch == Architecture::kGpt2;
  const int64_t stream_rows = part.ResidualRows(rows);
  BlockActivations block;
  if (gpt2) block.norm_1_mean = Allocate(stream_rows);
  block.norm_1_rstd = Allocate(stream_rows);
  block.qkv = Allocate(rows * part.qkv_channels());
  block.lse = Allocate(rows * part.heads);
  block.attention = Allocate(rows * part.attention_channels());
  block.middle = Allocate(stream_rows * shape.hidden);
  if (gpt2) block.norm_2_mean = Allocate(stream_rows);
  block.norm_2_rstd = Allocate(stream_rows);
  block.mlp = Allocate(rows * (gpt2 ? part.ffn : 2 * part.ffn));
  return block;
}

}  // namespace sherd
