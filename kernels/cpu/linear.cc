#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/fold.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/tiling.h"

namespace sherd {
namespace {

// Longest inner dimension of one GEMM call, which bounds the panels that operands are copied to.
constexpr int64_t kInner = 2048;
constexpr int64_t kBiasColumns = 256;

// Cuts an output (rows, columns) into tiles for oneDNN, whose blocks are 48 wide with AVX-512 and
// 24 or 16 with AVX2. The largest tiles run within a twentieth of an uncut GEMM's speed, of 384 ×
// 384 within a tenth, of 128 × 128 within a quarter; small ones are taken only where larger ones
// would be too few to share out evenly.
class OutputTiles {
 public:
  OutputTiles(int64_t rows, int64_t columns)
      : rows_(rows, kLimits[0].rows, kUnit), columns_(columns, kLimits[0].columns, kUnit) {
    for (const Limit& limit : kLimits) {
      rows_ = Cut(rows, limit.rows, kUnit);
      columns_ = Cut(columns, limit.columns, kUnit);
      if (count() >= 12 || (count() >= 4 && count() % 2 == 0)) return;
    }
  }
  int64_t count() const { return rows_.pieces() * columns_.pieces(); }
  int64_t largest_rows() const { return rows_.largest(); }
  int64_t largest_columns() const { return columns_.largest(); }
  // Tiles below each other follow each other, so that a thread keeps its panel of weights.
  Span1D rows(int64_t index) const { return rows_[index % rows_.pieces()]; }
  Span1D columns(int64_t index) const { return columns_[index / rows_.pieces()]; }

 private:
  struct Limit {
    int64_t rows, columns;
  };
  static constexpr Limit kLimits[] = {{528, 768}, {384, 768}, {384, 384},
                                      {256, 256}, {192, 192}, {128, 128}};
  static constexpr int64_t kUnit = 48;
  Cut rows_, columns_;
};

// Floats of the panel that blocks of up to so many elements are widened into.
int64_t WidenedPanel(ConstParam w, int64_t elements) {
  return w.dtype == DType::kF32 ? 0 : elements;
}

// A block of a row-major matrix of weights as fp32: in place, or widened into the thread's panel
// unless it is there already.
Matrix WidenedBlock(ConstParam w, int64_t stride, Span1D rows, Span1D columns,
                    ThreadScratch& scratch) {
  const int64_t origin = rows.begin * stride + columns.begin;
  if (w.dtype == DType::kF32) return {static_cast<const float*>(w.data) + origin, stride};
  float* to = scratch.panel.Floats(rows.size() * columns.size());
  if (scratch.panel_origin != origin) {
    const auto* from = static_cast<const BF16*>(w.data) + origin;
    for (int64_t row = 0; row < rows.size(); ++row) {
      CastSerial(from + row * stride, DType::kBF16, to + row * columns.size(), DType::kF32,
                 columns.size());
    }
    scratch.panel_origin = origin;
  }
  return {to, columns.size()};
}

// Between the rows of a compact block.
int64_t CompactStride(int64_t columns) {
  constexpr int64_t kLine = 16;
  return CeilDiv(columns, 2 * kLine) * 2 * kLine + kLine;
}

// A block of a row-major matrix, copied close together. oneDNN reads a transposed operand a few
// columns at a time down all rows; rows whose distance is near a multiple of a page would push each
// other out of the first-level cache before the next columns are read. Hence the odd line, too.
Matrix CompactBlock(const float* x, int64_t stride, Span1D rows, Span1D columns, Scratch& scratch) {
  const int64_t to_stride = CompactStride(columns.size());
  float* to = scratch.Floats(rows.size() * to_stride);
  for (int64_t row = 0; row < rows.size(); ++row) {
    std::memcpy(to + row * to_stride, x + (rows.begin + row) * stride + columns.begin,
                static_cast<size_t>(columns.size()) * sizeof(float));
  }
  return {to, to_stride};
}

// c (out tile, in tile; c_stride) = dyᵀ · x over all rows, added to c when `accumulate`; zeros when
// there are none.
void WeightTile(const float* dy, const float* x, int64_t rows, int64_t in, int64_t out, Span1D o,
                Span1D i, Scratch& panel, bool accumulate, float* c, int64_t c_stride) {
  int64_t begin = 0;
  do {
    const Span1D k{begin, std::min(rows, begin + kInner)};
    Matrix dy_panel = CompactBlock(dy, out, k, o, panel);
    dy_panel.transpose = Transpose::kYes;
    Gemm(o.size(), i.size(), k.size(), dy_panel, {x + k.begin * in + i.begin, in},
         accumulate || begin != 0, c, c_stride);
    begin = k.end;
  } while (begin < rows);
}

// Column sums of the columns `o` of dy (rows, out). `values` has room for them.
void SumBias(const float* dy, Span1D o, int64_t rows, int64_t out, const GradOut& dbias,
             const Scratch& values) {
  float* sums = values.Floats(o.size());
  SumColumns(dy + o.begin, out, rows, o.size(), sums);
  WriteGrad(dbias, o.begin, sums, o.size());
}

Cut CutBias(int64_t columns) { return {columns, kBiasColumns, 16}; }

}  // namespace

void CpuOps::ForgetPanels() {
  for (ThreadScratch& scratch : scratch_) scratch.panel_origin = -1;
}

void CpuOps::LinearForward(const float* x, ConstParam w, ConstParam bias, float* y, int64_t rows,
                           int64_t in, int64_t out) {
  const OutputTiles tiles(rows, out);
  ForgetPanels();
  ReserveOnEachThread(&ThreadScratch::panel,
                      WidenedPanel(w, tiles.largest_columns() * std::min(in, kInner)));
  const float* bias_floats = bias.data == nullptr ? nullptr : Widened(bias, out, Shared(out));
  pool_.ParallelFor(tiles.count(), [&](int64_t index, int thread) {
    const Span1D r = tiles.rows(index);
    const Span1D o = tiles.columns(index);
    float* tile = y + r.begin * out + o.begin;
    for (int64_t begin = 0; begin < in; begin += kInner) {
      const Span1D k{begin, std::min(in, begin + kInner)};
      Matrix panel = WidenedBlock(w, in, o, k, scratch_[thread]);
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
  const OutputTiles tiles(rows, in);
  ForgetPanels();
  ReserveOnEachThread(&ThreadScratch::panel,
                      WidenedPanel(w, std::min(out, kInner) * tiles.largest_columns()));
  pool_.ParallelFor(tiles.count(), [&](int64_t index, int thread) {
    const Span1D r = tiles.rows(index);
    const Span1D i = tiles.columns(index);
    for (int64_t begin = 0; begin < out; begin += kInner) {
      const Span1D k{begin, std::min(out, begin + kInner)};
      const Matrix panel = WidenedBlock(w, in, k, i, scratch_[thread]);
      Gemm(r.size(), i.size(), k.size(), {dy + r.begin * out + k.begin, out}, panel,
           accumulate || begin != 0, dx + r.begin * in + i.begin, in);
    }
  });
}

void CpuOps::LinearBackwardWeight(const float* dy, const float* x, GradOut dw, GradOut dbias,
                                  int64_t rows, int64_t in, int64_t out) {
  const OutputTiles tiles(out, in);
  const Cut bias_cut = CutBias(dbias.data == nullptr ? 0 : out);
  const bool in_place = dw.dtype == DType::kF32;
  ReserveOnEachThread(&ThreadScratch::panel,
                      std::min(rows, kInner) * CompactStride(tiles.largest_rows()));
  ReserveOnEachThread(&ThreadScratch::tile,
                      in_place ? 0 : tiles.largest_rows() * tiles.largest_columns());
  ReserveOnEachThread(&ThreadScratch::values, bias_cut.largest());
  pool_.ParallelFor(tiles.count() + bias_cut.pieces(), [&](int64_t index, int thread) {
    if (index >= tiles.count()) {
      const Span1D o = bias_cut[index - tiles.count()];
      return SumBias(dy, o, rows, out, dbias, scratch_[thread].values);
    }
    const Span1D o = tiles.rows(index);
    const Span1D i = tiles.columns(index);
    Scratch& panel = scratch_[thread].panel;
    if (in_place) {
      float* place = static_cast<float*>(dw.data) + o.begin * in + i.begin;
      WeightTile(dy, x, rows, in, out, o, i, panel, dw.accumulate, place, in);
      return;
    }
    float* tile = scratch_[thread].tile.Floats(o.size() * i.size());
    WeightTile(dy, x, rows, in, out, o, i, panel, /*accumulate=*/false, tile, i.size());
    for (int64_t row = 0; row < o.size(); ++row) {
      WriteGrad(dw, (o.begin + row) * in + i.begin, tile + row * i.size(), i.size());
    }
  });
}

void CpuOps::BiasBackward(const float* dy, GradOut dbias, int64_t rows, int64_t channels) {
  const Cut cut = CutBias(channels);
  ReserveOnEachThread(&ThreadScratch::values, cut.largest());
  pool_.ParallelFor(cut.pieces(), [&](int64_t index, int thread) {
    SumBias(dy, cut[index], rows, channels, dbias, scratch_[thread].values);
  });
}

}  // namespace sherd
