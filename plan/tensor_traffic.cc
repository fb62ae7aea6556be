#include "plan/tensor_traffic.h"

#include <algorithm>

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = 4;

// `count` collectives over all rows of C, one kind of each.
struct RowCollectives {
  int sums = 0;
  // With sequence parallelism alone.
  int gathers = 0;
};

// A column-split layer gathers its input, a row-split one sums its output; backward the other way
// round, and a column-split layer's input is gathered again.
constexpr RowCollectives kEmbeddingForward{.sums = 1, .gathers = 0};
constexpr RowCollectives kEmbeddingBackward{.sums = 0, .gathers = 1};
constexpr RowCollectives kBlockForward{.sums = 2, .gathers = 2};
constexpr RowCollectives kBlockBackward{.sums = 2, .gathers = 4};
// All of a block's forward but the MLP's second layer.
constexpr RowCollectives kBlockAgain{.sums = 1, .gathers = 2};
constexpr RowCollectives kHeadForward{.sums = 0, .gathers = 1};
constexpr RowCollectives kHeadBackward{.sums = 1, .gathers = 0};

TensorTraffic TrafficOf(const RowCollectives& collectives, const ModelShape& shape,
                        const ModelPart& part, int64_t rows) {
  const TensorPlace& place = part.place;
  TensorTraffic traffic;
  if (place.degree == 1) return traffic;
  const int64_t part_bytes = part.ResidualRows(rows) * shape.hidden * kFloatBytes;
  for (int i = 0; i < collectives.sums; ++i) {
    if (place.sequence) {
      traffic.reduce_scatter += ReduceScatterWire(place.degree, part_bytes);
    } else {
      traffic.all_reduce +=
          AllReduceWire(place.degree, place.index, rows * shape.hidden, kFloatBytes);
    }
  }
  for (int i = 0; i < collectives.gathers && place.sequence; ++i) {
    traffic.all_gather += AllGatherWire(place.degree, part_bytes);
  }
  return traffic;
}

}  // namespace

TensorTraffic& TensorTraffic::operator+=(const TensorTraffic& other) {
  all_gather += other.all_gather;
  reduce_scatter += other.reduce_scatter;
  all_reduce += other.all_reduce;
  return *this;
}

TensorTraffic ForwardTraffic(const ModelShape& shape, const ModelPart& part, int64_t unit,
                             int64_t rows) {
  const RowCollectives& collectives = unit == 0              ? kEmbeddingForward
                                      : unit <= shape.layers ? kBlockForward
                                                             : kHeadForward;
  return TrafficOf(collectives, shape, part, rows);
}

TensorTraffic BackwardTraffic(const ModelShape& shape, const ModelPart& part, int64_t unit,
                              int64_t rows, KeptActivations kept) {
  if (unit == 0) return TrafficOf(kEmbeddingBackward, shape, part, rows);
  if (unit > shape.layers) {
    TensorTraffic traffic = TrafficOf(kHeadBackward, shape, part, rows);
    traffic += LossTraffic(part, rows);
    return traffic;
  }
  TensorTraffic traffic = TrafficOf(kBlockBackward, shape, part, rows);
  if (kept == KeptActivations::kBlockInputs && unit != shape.layers) {
    traffic += TrafficOf(kBlockAgain, shape, part, rows);
  }
  return traffic;
}

TensorTraffic LossTraffic(const ModelPart& part, int64_t rows) {
  TensorTraffic traffic;
  if (part.place.degree == 1) return traffic;
  const int64_t chunk_rows = HeadChunkRows(part, rows);
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    const int64_t bytes = std::min(chunk_rows, rows - first) * kLogitStatisticsBytes;
    traffic.all_gather += AllGatherWire(part.place.degree, bytes);
  }
  return traffic;
}

}  // namespace sherd
