#include <algorithm>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/fold.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/tiling.h"

namespace sherd {
namespace {

// An output tile; measured best with oneDNN at GPT's shapes.
constexpr int64_t kTile = 256;
constexpr int64_t kTileUnit = 16;
// Longest inner dimension of one GEMM call, which bounds the widened panel of weights.
constexpr int64_t kInner = 2048;
constexpr int64_t kBiasColumns = 256;

// Rows [rows.begin, rows.end) and columns of a row-major matrix of weights as fp32: in place, or
// widened into `scratch`.
Matrix WidenedBlock(ConstParam w, int64_t stride, Span1D rows, Span1D columns, Scratch& scratch) {
  const int64_t origin = rows.begin * stride + columns.begin;
  if (w.dtype == DType::kF32) return {static_cast<const float*>(w.data) + origin, stride};
  const auto* from = static_cast<const BF16*>(w.data) + origin;
  float* to = scratch.Floats(rows.size() * columns.size());
  for (int64_t row = 0; row < rows.size(); ++row) {
    CastSerial(from + row * stride, DType::kBF16, to + row * columns.size(), DType::kF32,
               columns.size());
  }
  return {to, columns.size()};
}

}  // namespace

void CpuOps::LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                           int64_t in, int64_t out) {
  const Cut row_cut(rows, kTile, kTileUnit);
  const Cut out_cut(out, kTile, kTileUnit);
  const float* bias_floats = bias.data == nullptr ? nullptr : Widened(bias, out, shared_);
  pool_.ParallelFor(row_cut.pieces() * out_cut.pieces(), [&](int64_t index, int thread) {
    const Span1D r = row_cut[index % row_cut.pieces()];
    const Span1D o = out_cut[index / row_cut.pieces()];
    float* tile = y + r.begin * out + o.begin;
    for (int64_t begin = 0; begin < in; begin += kInner) {
      const Span1D k{begin, std::min(in, begin + kInner)};
      Matrix panel = WidenedBlock(w, in, o, k, scratch_[thread].panel);
      panel.transpose = Transpose::kYes;
      Gemm(r.size(), o.size(), k.size(), {x + r.begin * in + k.begin, in}, panel, begin != 0, tile,
           out);
    }
    if (bias_floats == nullptr) return;
    for (int64_t row = 0; row < r.size(); ++row) {
      AddRow(tile + row * out, bias_floats + o.begin, o.size());
    }
  });
}

void CpuOps::LinearBackwardInput(const float* dy, ConstParam w, float* dx, int64_t rows, int64_t in,
                                 int64_t out, bool accumulate) {
  const Cut row_cut(rows, kTile, kTileUnit);
  const Cut in_cut(in, kTile, kTileUnit);
  pool_.ParallelFor(row_cut.pieces() * in_cut.pieces(), [&](int64_t index, int thread) {
    const Span1D r = row_cut[index % row_cut.pieces()];
    const Span1D i = in_cut[index / row_cut.pieces()];
    for (int64_t begin = 0; begin < out; begin += kInner) {
      const Span1D k{begin, std::min(out, begin + kInner)};
      const Matrix panel = WidenedBlock(w, in, k, i, scratch_[thread].panel);
      Gemm(r.size(), i.size(), k.size(), {dy + r.begin * out + k.begin, out}, panel,
           accumulate || begin != 0, dx + r.begin * in + i.begin, in);
    }
  });
}

void CpuOps::LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                                  int64_t rows, int64_t in, int64_t out) {
  const Cut out_cut(out, kTile, kTileUnit);
  const Cut in_cut(in, kTile, kTileUnit);
  const Cut bias_cut(dbias.data == nullptr ? 0 : out, kBiasColumns, kTileUnit);
  const int64_t weight_tiles = out_cut.pieces() * in_cut.pieces();
  pool_.ParallelFor(weight_tiles + bias_cut.pieces(), [&](int64_t index, int thread) {
    Scratch& scratch = scratch_[thread].tile;
    if (index >= weight_tiles) {
      const Span1D o = bias_cut[index - weight_tiles];
      float* sums = scratch.Floats(o.size());
      SumColumns(dy + o.begin, out, rows, o.size(), sums);
      WriteGrad(dbias, o.begin, sums, o.size());
      return;
    }
    const Span1D o = out_cut[index / in_cut.pieces()];
    const Span1D i = in_cut[index % in_cut.pieces()];
    const Matrix a{dy + o.begin, out, Transpose::kYes};
    const Matrix b{x + i.begin, in};
    if (dw.dtype == DType::kF32 && !dw.accumulate) {
      float* tile = static_cast<float*>(dw.data) + o.begin * in + i.begin;
      Gemm(o.size(), i.size(), rows, a, b, false, tile, in);
      return;
    }
    float* tile = scratch.Floats(o.size() * i.size());
    Gemm(o.size(), i.size(), rows, a, b, false, tile, i.size());
    for (int64_t row = 0; row < o.size(); ++row) {
      WriteGrad(dw, (o.begin + row) * in + i.begin, tile + row * i.size(), i.size());
    }
  });
}

}  // namespace sherd
