#include "plan/scratch.h"

#include <algorithm>

#include "plan/activations.h"

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// How kernels/cpu/linear.cc cuts an output: as large as gives enough tiles to share out.
constexpr int64_t kTileUnit = 48;
constexpr struct {
  int64_t rows, columns;
} kTileLimits[] = {{528, 768}, {384, 768}, {384, 384}, {256, 256}, {192, 192}, {128, 128}};
// Its longest inner dimension.
constexpr int64_t kInner = 2048;

// The largest piece of `size` in near-equal pieces of about `limit`, and how many there are.
struct Pieces {
  int64_t largest = 0;
  int64_t count = 0;
};
Pieces CutInto(int64_t size, int64_t limit) {
  const int64_t piece = CeilDiv(CeilDiv(size, CeilDiv(size, limit)), kTileUnit) * kTileUnit;
  return {std::min(size, piece), CeilDiv(size, piece)};
}

struct Tile {
  int64_t rows = 0;
  int64_t columns = 0;
};
Tile LargestTile(int64_t rows, int64_t columns) {
  Tile tile;
  for (const auto& limit : kTileLimits) {
    const Pieces down = CutInto(rows, limit.rows);
    const Pieces across = CutInto(columns, limit.columns);
    tile = {down.largest, across.largest};
    const int64_t count = down.count * across.count;
    if (count >= 12 || (count >= 4 && count % 2 == 0)) break;
  }
  return tile;
}

// Floats of one thread's panel and tile.
struct LinearScratch {
  int64_t panel = 0;
  int64_t tile = 0;
};

// Of y (rows, out) = x (rows, in) · wᵀ, forward and backward. Stored halves are widened: forward a
// panel of (tile's outputs, inputs), backward one of (outputs, tile's inputs). The gradient of w
// takes a panel of (rows, tile's outputs), whose rows end at an odd line of 16, and a tile of its
// own unless it is stored as it is computed.
LinearScratch ScratchOf(int64_t rows, int64_t in, int64_t out, bool half_params, bool half_grads) {
  LinearScratch scratch;
  if (half_params) {
    scratch.panel = std::max(LargestTile(rows, out).columns * std::min(in, kInner),
                             std::min(out, kInner) * LargestTile(rows, in).columns);
  }
  const Tile gradient = LargestTile(out, in);
  const int64_t stride = CeilDiv(gradient.rows, 32) * 32 + 16;
  scratch.panel = std::max(scratch.panel, std::min(rows, kInner) * stride);
  if (half_grads) scratch.tile = gradient.rows * gradient.columns;
  return scratch;
}

}  // namespace

// A thread has a panel and a tile for the largest of the linear layers, of which the head sees a
// chunk of rows at a time, and values for 64 queries' scores of 256 keys and either their outputs
// or as many gradients, or for a norm's widened weight (and bias). All threads share the largest
// of: a widened bias (F, 3C, C), sums of C of each of the norm's parameters for each 32 rows, a
// loss of 8 bytes a row of the head's chunk, and rows grouped by token (V + N).
ScratchSizes PredictScratch(const ModelShape& shape, const ModelPart& part, int64_t batch,
                            int64_t tokens, int64_t param_bytes, int64_t grad_bytes) {
  const int64_t rows = batch * tokens;
  const int64_t chunk_rows = HeadChunkRows(part, rows);
  const int64_t channels = shape.hidden;
  const bool half_params = param_bytes < kFloatBytes;
  ScratchSizes sizes;
  const auto add_linear = [&](int64_t of_rows, int64_t in, int64_t out) {
    const LinearScratch scratch =
        ScratchOf(of_rows, in, out, half_params, grad_bytes < kFloatBytes);
    sizes.panel = std::max(sizes.panel, scratch.panel);
    sizes.tile = std::max(sizes.tile, scratch.tile);
  };
  const bool llama = shape.arch == Architecture::kLlama;
  const int64_t qkv = part.qkv_channels();
  add_linear(rows, channels, qkv);
  add_linear(rows, part.attention_channels(), channels);
  add_linear(rows, channels, llama ? 2 * part.ffn : part.ffn);  // gate and up at once
  add_linear(rows, part.ffn, channels);
  add_linear(chunk_rows, channels, part.vocab);
  if (rows % chunk_rows != 0) add_linear(rows % chunk_rows, channels, part.vocab);
  const int64_t norm_vectors = llama ? 1 : 2;
  sizes.values =
      std::max(64 * (256 + std::max<int64_t>(256, shape.head_size())), norm_vectors * channels);
  const int64_t widest_bias = llama ? 0 : std::max({part.ffn, qkv, channels});
  // In a group the loss is added up from statistics, without a place of its own.
  const int64_t losses = part.place.degree == 1 ? 2 * chunk_rows : 0;
  sizes.shared =
      std::max({widest_bias, CeilDiv(part.ResidualRows(rows), 32) * norm_vectors * channels, losses,
                part.vocab + rows});
  return sizes;
}

}  // namespace sherd
