#include "plan/device_scratch.h"

#include <algorithm>

#include "plan/activations.h"

namespace sherd {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kHalfBytes = 2;
constexpr int64_t kDoubleBytes = 8;
// Where losses and sums of squares are added up.
constexpr int64_t kSumBytes = 88;

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Partial sums of columns, of 64 rows each, until there are 64 or fewer.
int64_t SumsOfColumns(int64_t rows, int64_t columns) {
  int64_t floats = 0;
  while (rows > 64) {
    rows = CeilDiv(rows, 64);
    floats += rows * columns;
  }
  return kFloatBytes * floats;
}

// Backward of a norm with so many parameters of the row's width: sums of 32 rows each, padded to
// whole packs of four, and sums of these.
int64_t NormBytes(int64_t rows, int64_t channels, int64_t parameters) {
  const int64_t tiles = CeilDiv(rows, 32);
  return kFloatBytes * tiles * parameters * CeilDiv(channels, 4) * 4 +
         SumsOfColumns(tiles, channels);
}

// A chunk of 2048 squares leaves a record of 21 words, 1024 blocks at most.
int64_t SquaresBytes(int64_t elements) {
  return std::min<int64_t>(CeilDiv(elements, 2048), 1024) * 21 * 8;
}

// An operand that is rounded before a product.
int64_t Operand(int64_t elements, int64_t element_bytes) {
  return CeilDiv(elements * element_bytes, 256) * 256;
}

class LargestCalls {
 public:
  LargestCalls(int64_t param_bytes, int64_t grad_bytes)
      : half_operands_(param_bytes < kFloatBytes), half_gradients_(grad_bytes < kFloatBytes) {}

  // y (rows, out) = x (rows, in) · wᵀ, forward and backward.
  void AddLinear(int64_t rows, int64_t in, int64_t out, bool bias) {
    if (half_operands_) {
      const int64_t x = Operand(rows * in, kHalfBytes), dy = Operand(rows * out, kHalfBytes);
      AddOperands(x + (bias ? Operand(out, kFloatBytes) : 0));
      AddOperands(dy + x);
    } else if (half_gradients_) {
      // Of fp32 operands products are fp32.
      AddOperands(Operand(out * in, kFloatBytes));
    }
    if (bias) AddKernel(SumsOfColumns(rows, out));
  }
  void AddKernel(int64_t bytes) { largest_.kernels = std::max(largest_.kernels, bytes); }
  const DeviceScratch& largest() const { return largest_; }

 private:
  void AddOperands(int64_t bytes) { largest_.operands = std::max(largest_.operands, bytes); }

  const bool half_operands_, half_gradients_;
  DeviceScratch largest_;
};

}  // namespace

DeviceScratch LargestDeviceScratch(const RankPlan& plan, const v1::JobSpec& spec) {
  const ModelPart& part = plan.part();
  const int64_t rows = spec.train().micro_batch() * spec.train().seq_len();
  const int64_t residual_rows = part.ResidualRows(rows);
  const int64_t hidden = plan.shape.hidden;
  const bool llama = plan.shape.arch == Architecture::kLlama;
  LargestCalls calls(plan.param_bytes, plan.grad_bytes);
  calls.AddLinear(rows, hidden, part.qkv_channels(), !llama);
  calls.AddLinear(rows, part.attention_channels(), hidden, false);
  calls.AddLinear(rows, hidden, llama ? 2 * part.ffn : part.ffn, !llama);
  calls.AddLinear(rows, part.ffn, hidden, false);
  // Their biases are added with the residual.
  if (!llama) calls.AddKernel(SumsOfColumns(residual_rows, hidden));
  const int64_t chunk_rows = HeadChunkRows(part, rows);
  calls.AddLinear(chunk_rows, hidden, part.vocab, false);
  calls.AddKernel(kDoubleBytes * chunk_rows);
  calls.AddKernel(NormBytes(residual_rows, hidden, llama ? 1 : 2));
  calls.AddKernel(kFloatBytes * rows * part.heads);
  // Of gradients, and at last of weights, each counted by one rank.
  for (size_t unit = 0; unit < plan.inventory.units.size(); ++unit) {
    for (const ElementRange& range : plan.Counted(static_cast<int>(unit))) {
      calls.AddKernel(SquaresBytes(range.size()));
    }
  }
  return calls.largest();
}

int64_t PredictDeviceScratch(const RankPlan& plan, const v1::JobSpec& spec,
                             int64_t workspace_bytes) {
  const DeviceScratch largest = LargestDeviceScratch(plan, spec);
  return workspace_bytes + kSumBytes + largest.kernels + largest.operands;
}

}  // namespace sherd
