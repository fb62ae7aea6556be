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

// Tokens count from `first` on; others are left out. `room` is for (V + N) floats.
RowsByToken GroupRows(const int32_t* tokens, int64_t first, int64_t rows, int64_t vocab,
                      float* room) {
  auto* const numbers = reinterpret_cast<int32_t*>(room);
  const RowsByToken groups{numbers, numbers + vocab};
  std::fill(groups.end, groups.end + vocab, 0);
  const auto for_each_row = [&](auto visit) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t token = tokens[i] - first;
      if (token >= 0 && token < vocab) visit(i, token);
    }
  };
  for_each_row([&](int64_t, int64_t token) { ++groups.end[token]; });
  // Where groups begin, first; each row that is put there moves its group's on.
  std::exclusive_scan(groups.end, groups.end + vocab, groups.end, 0);
  for_each_row([&](int64_t row, int64_t token) {
    groups.row[groups.end[token]++] = static_cast<int32_t>(row);
  });
  return groups;
}

}  // namespace

void CpuOps::EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first, int64_t vocab,
                              float* x, int64_t rows, int64_t channels) {
  ForRanges(rows, kForwardRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = tokens[row] - first;
      float* const to = x + row * channels;
      if (token >= 0 && token < vocab) {
        WidenRow(wte, token, channels, to);
      } else {
        std::fill(to, to + channels, 0.0f);
      }
    }
  });
}

void CpuOps::EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, int64_t first,
                               int64_t vocab, int64_t rows, int64_t channels) {
  const RowsByToken groups = GroupRows(tokens, first, rows, vocab, Shared(vocab + rows));
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
}

void CpuOps::PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row,
                             int64_t rows, int64_t tokens_per_sequence, int64_t channels) {
  ReserveOnEachThread(&ThreadScratch::values, channels);
  pool_.ParallelFor(CeilDiv(rows, kForwardRows), [&](int64_t index, int thread) {
    float* position = scratch_[thread].values.Floats(channels);
    const int64_t end = std::min(rows, (index + 1) * kForwardRows);
    for (int64_t row = index * kForwardRows; row < end; ++row) {
      const int64_t at = row * channels;
      WidenRow(wpe, (first_row + row) % tokens_per_sequence, channels, position);
      if (y != x) std::copy(x + at, x + at + channels, y + at);
      AddRow(y + at, position, channels);
    }
  });
}

void CpuOps::PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                              int64_t tokens_per_sequence, int64_t channels, int64_t context) {
  ReserveOnEachThread(&ThreadScratch::values, channels);
  const int64_t positions = dwpe.accumulate ? tokens_per_sequence : context;
  const int64_t first_position = first_row % tokens_per_sequence;
  pool_.ParallelFor(CeilDiv(positions, kPositions), [&](int64_t index, int thread) {
    float* sums = scratch_[thread].values.Floats(channels);
    const int64_t end = std::min(positions, (index + 1) * kPositions);
    for (int64_t position = index * kPositions; position < end; ++position) {
      std::fill(sums, sums + channels, 0.0f);
      // Positions beyond the sequences' end have no rows.
      const int64_t ahead = position - first_position;
      int64_t row =
          position < tokens_per_sequence ? (ahead < 0 ? ahead + tokens_per_sequence : ahead) : rows;
      for (; row < rows; row += tokens_per_sequence) AddRow(sums, dx + row * channels, channels);
      WriteGrad(dwpe, position * channels, sums, channels);
    }
  });
}

}  // namespace sherd
