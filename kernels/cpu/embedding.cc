#include <algorithm>
#include <cstddef>
#include <numeric>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/fold.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/tiling.h"

namespace sherd {
namespace {

constexpr int64_t kForwardRows = 32;
constexpr int64_t kPositions = 8;
// The vocabulary is cut into at most this many tiles.
constexpr int64_t kVocabTiles = 256;

void WidenRow(ConstParam param, int64_t row, int64_t channels, float* to) {
  const auto* from = static_cast<const std::byte*>(param.data);
  CastSerial(from + row * channels * SizeOf(param.dtype), param.dtype, to, DType::kF32, channels);
}

// Row numbers grouped by token, in row order inside a group.
struct RowsByToken {
  int32_t* end;  // (V): where a token's group ends in `row`; the one before ends where it begins
  int32_t* row;  // (N)

  int32_t begin(int64_t token) const { return token == 0 ? 0 : end[token - 1]; }
};
static_assert(sizeof(int32_t) == sizeof(float));

// `room` is for (V + N) floats.
RowsByToken GroupRows(const int32_t* tokens, int64_t rows, int64_t vocab, float* room) {
  auto* const first = reinterpret_cast<int32_t*>(room);
  const RowsByToken groups{first, first + vocab};
  std::fill(groups.end, groups.end + vocab, 0);
  for (int64_t i = 0; i < rows; ++i) ++groups.end[tokens[i]];
  // Where groups begin, first; each row that is put there moves its group's on.
  std::exclusive_scan(groups.end, groups.end + vocab, groups.end, 0);
  for (int64_t i = 0; i < rows; ++i) groups.row[groups.end[tokens[i]]++] = static_cast<int32_t>(i);
  return groups;
}

}  // namespace

void CpuOps::EmbeddingForward(const int32_t* tokens, ConstParam wte, ConstParam wpe, float* x,
                              int64_t batch, int64_t tokens_per_sequence, int64_t channels) {
  const int64_t rows = batch * tokens_per_sequence;
  ReserveOnEachThread(&ThreadScratch::values, channels);
  pool_.ParallelFor(CeilDiv(rows, kForwardRows), [&](int64_t index, int thread) {
    float* position = scratch_[thread].values.Floats(channels);
    const int64_t end = std::min(rows, (index + 1) * kForwardRows);
    for (int64_t row = index * kForwardRows; row < end; ++row) {
      WidenRow(wte, tokens[row], channels, x + row * channels);
      if (wpe.data == nullptr) continue;
      WidenRow(wpe, row % tokens_per_sequence, channels, position);
      AddRow(x + row * channels, position, channels);
    }
  });
}

void CpuOps::EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, GradOut dwpe,
                               int64_t batch, int64_t tokens_per_sequence, int64_t channels,
                               int64_t vocab, int64_t context) {
  const int64_t rows = batch * tokens_per_sequence;
  const RowsByToken groups = GroupRows(tokens, rows, vocab, Shared(vocab + rows));
  ReserveOnEachThread(&ThreadScratch::values, channels);
  const Cut vocab_cut(vocab, std::max<int64_t>(CeilDiv(vocab, kVocabTiles), 4), 1);
  pool_.ParallelFor(vocab_cut.pieces(), [&](int64_t index, int thread) {
    float* sums = scratch_[thread].values.Floats(channels);
    const Span1D tile = vocab_cut[index];
    for (int64_t token = tile.begin; token < tile.end; ++token) {
      const int32_t begin = groups.begin(token);
      if (begin == groups.end[token] && dwte.accumulate) continue;
      std::fill(sums, sums + channels, 0.0f);
      for (int32_t i = begin; i < groups.end[token]; ++i) {
        AddRow(sums, dx + groups.row[i] * channels, channels);
      }
      WriteGrad(dwte, token * channels, sums, channels);
    }
  });
  if (dwpe.data == nullptr) return;
  const int64_t positions = dwpe.accumulate ? tokens_per_sequence : context;
  pool_.ParallelFor(CeilDiv(positions, kPositions), [&](int64_t index, int thread) {
    float* sums = scratch_[thread].values.Floats(channels);
    const int64_t end = std::min(positions, (index + 1) * kPositions);
    for (int64_t position = index * kPositions; position < end; ++position) {
      std::fill(sums, sums + channels, 0.0f);
      for (int64_t b = 0; b < batch && position < tokens_per_sequence; ++b) {
        AddRow(sums, dx + (b * tokens_per_sequence + position) * channels, channels);
      }
      WriteGrad(dwpe, position * channels, sums, channels);
    }
  });
}

}  // namespace sherd
