// Rows of tables: of tokens and of positions.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

constexpr int kWidth = 4;

template <typename T>
__global__ void __launch_bounds__(kElementThreads)
    EmbeddingForwardKernel(const int32_t* tokens, const T* wte, int64_t first, int64_t vocab,
                           float* x, int64_t rows, int64_t channels, bool whole) {
  const PackOfRow p = FindPack<kWidth>(channels);
  if (p.row >= rows) return;
  const int64_t token = tokens[p.row] - first;
  Pack<kWidth> pack = {};
  if (token >= 0 && token < vocab) {
    pack = LoadPack<kWidth>(wte + token * channels + p.column, p.left, whole);
  }
  StorePack(pack, x + p.row * channels + p.column, p.left, whole);
}

// Elements that no row adds to.
template <typename T>
__global__ void __launch_bounds__(kElementThreads) ZeroKernel(T* to, int64_t elements, bool whole) {
  constexpr int kZeroWidth = 8;
  const int64_t at = PackOfThread<kZeroWidth>();
  if (at < elements) StorePack(Pack<kZeroWidth>{}, to + at, elements - at, whole);
}

constexpr int kBackwardThreads = 256;
constexpr int64_t kBackwardColumns = int64_t{kBackwardThreads} * kWidth;

// A block a row and slice of columns: that of the first row of a token sums all rows of it, in row
// order; others have nothing to do. It finds them by looking through all tokens: rows² comparisons
// in all, and no memory.
template <typename T>
__global__ void __launch_bounds__(kBackwardThreads)
    EmbeddingBackwardKernel(const int32_t* tokens, const float* dx, T* dwte, int64_t first,
                            int64_t vocab, int64_t rows, int64_t channels, int64_t slices,
                            bool whole, bool whole_dwte, bool accumulate) {
  SIMT_SHARED(int, found, [kBackwardThreads]);
  SIMT_SHARED(int, of_warps, [kBackwardThreads / 32]);
  const int64_t row = blockIdx.x / slices;
  const int token = tokens[row];
  if (token < first || token >= first + vocab) return;
  bool seen = false;
  for (int64_t i = threadIdx.x; i < row && !seen; i += kBackwardThreads) seen = tokens[i] == token;
  if (__syncthreads_or(seen) != 0) return;

  const int64_t column = blockIdx.x % slices * kBackwardColumns + threadIdx.x * kWidth;
  const int64_t left = channels - column;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Pack<kWidth> sum = {};
  for (int64_t begin = row; begin < rows; begin += kBackwardThreads) {
    const int64_t mine = begin + threadIdx.x;
    const bool match = mine < rows && tokens[mine] == token;
    const unsigned matches = __ballot_sync(kAllLanes, match);
    if (lane == 0) of_warps[warp] = __popc(matches);
    __syncthreads();
    int place = __popc(matches & ((1u << lane) - 1)), count = 0;
    for (int i = 0; i < kBackwardThreads / 32; ++i) {
      if (i < warp) place += of_warps[i];
      count += of_warps[i];
    }
    if (match) found[place] = static_cast<int>(mine - begin);
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      const Pack<kWidth> pack =
          LoadPack<kWidth>(dx + (begin + found[i]) * channels + column, left, whole);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.v[j] = sum.v[j] + pack.v[j];
    }
    // The next rows' places go where these were.
    __syncthreads();
  }
  WriteGradient(sum, dwte + (token - first) * channels + column, left, whole_dwte, accumulate);
}

// y = x + wpe[position]; y may be x.
template <typename T>
__global__ void __launch_bounds__(kElementThreads)
    PositionForwardKernel(const float* x, const T* wpe, float* y, int64_t first_row, int64_t rows,
                          int64_t tokens_per_sequence, int64_t channels, bool whole) {
  const PackOfRow p = FindPack<kWidth>(channels);
  if (p.row >= rows) return;
  const int64_t position = (first_row + p.row) % tokens_per_sequence;
  const int64_t at = p.row * channels + p.column;
  Pack<kWidth> pack = LoadPack<kWidth>(x + at, p.left, whole);
  const Pack<kWidth> added = LoadPack<kWidth>(wpe + position * channels + p.column, p.left, whole);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.v[i] = pack.v[i] + added.v[i];
  StorePack(pack, y + at, p.left, whole);
}

// A thread's pack of a position is the sum of that position's rows, in row order.
template <typename T>
__global__ void __launch_bounds__(kElementThreads)
    PositionBackwardKernel(const float* dx, T* dwpe, int64_t first_row, int64_t rows,
                           int64_t tokens_per_sequence, int64_t channels, int64_t positions,
                           bool whole, bool accumulate) {
  const PackOfRow p = FindPack<kWidth>(channels);
  if (p.row >= positions) return;
  Pack<kWidth> sum = {};
  if (p.row < tokens_per_sequence) {
    const int64_t ahead = p.row - first_row % tokens_per_sequence;
    int64_t row = ahead < 0 ? ahead + tokens_per_sequence : ahead;
    for (; row < rows; row += tokens_per_sequence) {
      const Pack<kWidth> pack = LoadPack<kWidth>(dx + row * channels + p.column, p.left, whole);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.v[i] = sum.v[i] + pack.v[i];
    }
  }
  WriteGradient(sum, dwpe + p.row * channels + p.column, p.left, whole, accumulate);
}

int64_t BlocksOfRows(int64_t rows, int64_t channels) {
  return BlocksOfPacks(rows * CeilDiv(channels, kWidth), 1);
}

}  // namespace

void CudaKernels::EmbeddingForward(const int32_t* tokens, ConstParam wte, int64_t first,
                                   int64_t vocab, float* x, int64_t rows, int64_t channels) {
  const bool whole = channels % kWidth == 0 && AllAligned(wte.data, x);
  ForType(wte.dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(EmbeddingForwardKernel<T>), BlocksOfRows(rows, channels), kElementThreads, 0,
        tokens, static_cast<const T*>(wte.data), first, vocab, x, rows, channels, whole);
  });
}

void CudaKernels::EmbeddingBackward(const int32_t* tokens, const float* dx, GradOut dwte,
                                    int64_t first, int64_t vocab, int64_t rows, int64_t channels) {
  const int64_t slices = CeilDiv(channels, kBackwardColumns);
  const bool whole = channels % kWidth == 0;
  ForType(dwte.dtype, [&](auto type) {
    using T = decltype(type);
    T* const to = static_cast<T*>(dwte.data);
    if (!dwte.accumulate) {
      constexpr int kZeroWidth = 8;
      Run(SIMT_KERNEL(ZeroKernel<T>), BlocksOfPacks(vocab * channels, kZeroWidth), kElementThreads,
          0, to, vocab * channels, AllAligned(to));
    }
    Run(SIMT_KERNEL(EmbeddingBackwardKernel<T>), rows * slices, kBackwardThreads, 0, tokens, dx, to,
        first, vocab, rows, channels, slices, whole && AllAligned(dx), whole && AllAligned(to),
        dwte.accumulate);
  });
}

void CudaKernels::PositionForward(const float* x, ConstParam wpe, float* y, int64_t first_row,
                                  int64_t rows, int64_t tokens_per_sequence, int64_t channels) {
  const bool whole = channels % kWidth == 0 && AllAligned(x, wpe.data, y);
  ForType(wpe.dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(PositionForwardKernel<T>), BlocksOfRows(rows, channels), kElementThreads, 0, x,
        static_cast<const T*>(wpe.data), y, first_row, rows, tokens_per_sequence, channels, whole);
  });
}

void CudaKernels::PositionBackward(const float* dx, GradOut dwpe, int64_t first_row, int64_t rows,
                                   int64_t tokens_per_sequence, int64_t channels, int64_t context) {
  // Beyond the sequences there is nothing to add.
  const int64_t positions = dwpe.accumulate ? tokens_per_sequence : context;
  const bool whole = channels % kWidth == 0 && AllAligned(dx, dwpe.data);
  ForType(dwpe.dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(PositionBackwardKernel<T>), BlocksOfRows(positions, channels), kElementThreads,
        0, dx, static_cast<T*>(dwpe.data), first_row, rows, tokens_per_sequence, channels,
        positions, whole, dwpe.accumulate);
  });
}

}  // namespace sherd
