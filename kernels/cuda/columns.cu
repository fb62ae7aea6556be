// Sums over rows: of biases, and the second stage of weight gradients.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

constexpr int kWidth = 4;
constexpr int kThreads = 64;
// Rows of one block. Their sums are rows to be summed in turn, until they are few enough for one:
// less rounding than one long chain, and more blocks.
constexpr int64_t kRows = 64;

// A block's packs of columns, and its rows, which it sums one after another: sums (tiles, columns).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumColumnsKernel(const float* x, int64_t stride, int64_t rows, int64_t columns, T* sums,
                     int64_t column_blocks, bool whole, bool whole_sums, bool accumulate) {
  const int64_t tile = blockIdx.x / column_blocks;
  const int64_t column = (blockIdx.x % column_blocks * kThreads + threadIdx.x) * kWidth;
  const int64_t left = columns - column;
  if (left <= 0) return;
  Pack<kWidth> sum = {};
  const int64_t end = min(rows, (tile + 1) * kRows);
  for (int64_t row = tile * kRows; row < end; ++row) {
    const Pack<kWidth> pack = LoadPack<kWidth>(x + row * stride + column, left, whole);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.v[i] = sum.v[i] + pack.v[i];
  }
  WriteGradient(sum, sums + tile * columns + column, left, whole_sums, accumulate);
}

}  // namespace

int64_t CudaKernels::RoomOfSums(int64_t rows, int64_t columns) {
  int64_t room = 0;
  while (rows > kRows) {
    rows = CeilDiv(rows, kRows);
    room += rows * columns;
  }
  return room;
}

void CudaKernels::SumColumns(const float* x, int64_t stride, int64_t rows, int64_t columns,
                             GradOut gradient, float* room) {
  const int64_t column_blocks = CeilDiv(columns, kThreads * kWidth);
  while (rows > kRows) {
    const int64_t tiles = CeilDiv(rows, kRows);
    Run(SIMT_KERNEL(SumColumnsKernel<float>), tiles * column_blocks, kThreads, 0, x, stride, rows,
        columns, room, column_blocks, stride % kWidth == 0 && AllAligned(x),
        columns % kWidth == 0 && AllAligned(room), false);
    x = room;
    stride = columns;
    rows = tiles;
    room += tiles * columns;
  }
  const bool whole = stride % kWidth == 0 && AllAligned(x);
  // Of no rows too: zeros.
  ForType(gradient.dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(SumColumnsKernel<T>), column_blocks, kThreads, 0, x, stride, rows, columns,
        static_cast<T*>(gradient.data), column_blocks, whole, AllAligned(gradient.data),
        gradient.accumulate);
  });
}

void CudaKernels::BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) {
  float* const room = Scratch<float>(RoomOfSums(rows, channels));
  SumColumns(dy, channels, rows, channels, dbias, room);
}

}  // namespace sherd
