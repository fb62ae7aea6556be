#include <algorithm>
#include <cstddef>
#include <vector>

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
  std::vector<int32_t> first;  // (V + 1): where a token's group begins in `row`
  std::vector<int32_t> row;    // (N)
};

RowsByToken GroupRows(const int32_t* tokens, int64_t rows, int64_t vocab) {
  RowsByToken groups{std::vector<int32_t>(static_cast<size_t>(vocab) + 1),
                     std::vector<int32_t>(static_cast<size_t>(rows))};
  for (int64_t i = 0; i < rows; ++i) ++groups.first[tokens[i] + 1];
  for (int64_t v = 0; v < vocab; ++v) groups.first[v + 1] += groups.first[v];
  std::vector<int32_t> next(groups.first.begin(), groups.first.end() - 1);
  for (int64_t i = 0; i < rows; ++i) groups.row[next[tokens[i]]++] = static_cast<int32_t>(i);
  return groups;
}

}  // namespace

void CpuOps::EmbeddingForward(const int32_t* tokens, ConstParam wte, ConstParam wpe, float* x,
                              int64_t batch, int64_t tokens_per_sequence, int64_t channels) {
  ForRanges(batch * tokens_per_sequence, kForwardRows, [&](int64_t begin, int64_t end) {
    std::vector<float> position(static_cast<size_t>(channels));
    for (int64_t row = begin; row < end; ++row) {
      WidenRow(wte, tokens[row], channels, x + row * channels);
      if (wpe.data == nullptr) continue;
      WidenRow(wpe, row % tokens_per_sequence, channels, position.data());
      AddRow(x + row * channels, position.data(), channels);
    }
  });
}

void CpuOps::EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte, GradOut dwpe,
                               int64_t batch, int64_t tokens_per_sequence, int64_t channels,
                               int64_t vocab, int64_t context) {
  const RowsByToken groups = GroupRows(tokens, batch * tokens_per_sequence, vocab);
  const Cut vocab_cut(vocab, std::max<int64_t>(CeilDiv(vocab, kVocabTiles), 4), 1);
  pool_.ParallelFor(vocab_cut.pieces(), [&](int64_t index, int thread) {
    float* sums = scratch_[thread].values.Floats(channels);
    const Span1D tile = vocab_cut[index];
    for (int64_t token = tile.begin; token < tile.end; ++token) {
      if (groups.first[token] == groups.first[token + 1] && dwte.accumulate) continue;
      std::fill(sums, sums + channels, 0.0f);
      for (int32_t i = groups.first[token]; i < groups.first[token + 1]; ++i) {
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
