// Equal bits wherever arrays begin: 16 bytes are accessed at a time only where they may be.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "tests/kernels/values.h"
#include "tests/simt/simt_ops.h"

namespace sherd {
namespace {

// Arrays that begin some elements past a 16-byte boundary, and end where their memory ends.
class Arrays {
 public:
  explicit Arrays(size_t elements_off) : off_(elements_off) {}

  std::byte* Place(const void* values, size_t bytes, size_t element) {
    Array& array = arrays_.emplace_back();
    array.room.reset(new std::byte[bytes + off_ * element + 16]);
    std::byte* begin = array.room.get();
    while (reinterpret_cast<uintptr_t>(begin) % 16 != 0) ++begin;
    array.data = begin + off_ * element;
    array.bytes = bytes;
    std::memcpy(array.data, values, bytes);
    return array.data;
  }
  float* Of(const Floats& values) {
    return reinterpret_cast<float*>(Place(values.data(), values.size() * 4, 4));
  }
  float* Room(int64_t count) { return Of(Floats(static_cast<size_t>(count))); }
  void* Of(const Stored& values) {
    return Place(values.data(), static_cast<size_t>(values.elements() * SizeOf(values.dtype())),
                 static_cast<size_t>(SizeOf(values.dtype())));
  }
  std::vector<std::byte> Contents() const {
    std::vector<std::byte> all;
    for (const Array& array : arrays_) all.insert(all.end(), array.data, array.data + array.bytes);
    return all;
  }

 private:
  struct Array {
    std::unique_ptr<std::byte[]> room;
    std::byte* data;
    size_t bytes;
  };
  size_t off_;
  std::deque<Array> arrays_;
};

// Every operation once; everything that is written ends up in the result.
std::vector<std::byte> RunAll(size_t elements_off, DType dtype, int64_t channels) {
  const int64_t rows = 37, vocab = 52;
  const auto ops = simt::MakeSimtOps();
  Draw draw(5);
  Arrays arrays(elements_off);
  const auto floats = [&](int64_t count) { return arrays.Of(draw.Normal(count)); };
  const auto param = [&](int64_t count) -> ConstParam {
    return {arrays.Of(Stored(draw.Normal(count), dtype)), dtype};
  };
  const auto grad = [&](int64_t count) -> GradOut {
    return {arrays.Of(Stored(draw.Normal(count), dtype)), dtype, true};
  };
  float *const x = floats(rows * channels), *const dy = floats(rows * channels);
  float *const y = arrays.Room(rows * channels), *const dx = floats(rows * channels);
  float *const mean = arrays.Room(rows), *const rstd = arrays.Room(rows);
  const ConstParam w = param(channels);
  ops->LayerNormForward(x, w, w, y, mean, rstd, rows, channels);
  ops->LayerNormBackward(dy, x, w, mean, rstd, dx, true, grad(channels), grad(channels), rows,
                         channels);
  ops->RmsNormForward(x, w, 1e-5, y, rstd, rows, channels);
  ops->RmsNormBackward(dy, x, w, rstd, dx, true, grad(channels), rows, channels);
  ops->BiasBackward(dy, grad(channels), rows, channels);
  ops->ResidualForward(x, w, dy, y, rows, channels);
  ops->GeluForward(y, y, rows * channels);
  ops->GeluBackward(dy, y, arrays.Room(rows * channels), rows * channels);
  float *const gate_up = floats(rows * 2 * channels), *const gated = arrays.Room(rows * channels);
  ops->SwiGluForward(gate_up, gated, rows, channels);
  ops->SwiGluBackward(gated, gate_up, gate_up, rows, channels);
  const Tokens tokens = draw.Below(static_cast<int32_t>(vocab), rows);
  ops->EmbeddingForward(tokens.data(), param(vocab * channels), 0, vocab, y, rows, channels);
  ops->EmbeddingBackward(tokens.data(), dy, grad(vocab * channels), 0, vocab, rows, channels);
  ops->PositionForward(y, param(rows * channels), y, 3, rows, 20, channels);
  ops->PositionBackward(dy, grad(rows * channels), 3, rows, 20, channels, rows);
  const AttentionShape shape{
      .batch = 1, .tokens = rows, .heads = 4, .kv_heads = 2, .head_size = 16};
  float* const qkv = floats(rows * shape.qkv_channels());
  float *const out = arrays.Room(rows * 64), *const lse = arrays.Room(rows * 4);
  float *const dqkv = arrays.Room(rows * shape.qkv_channels()), *const dout = floats(rows * 64);
  float* const table = arrays.Room(rows * 16);
  ops->RotaryTable({}, table, rows, 16);
  ops->RotaryForward(qkv, table, shape);
  ops->AttentionForward(qkv, out, lse, shape);
  ops->AttentionBackward(dout, qkv, out, lse, dqkv, shape);
  ops->RotaryBackward(dqkv, table, shape);
  double loss = 0;
  constexpr LossOptions kOptions = {.z_loss = 1e-2, .label_smoothing = 0.1};
  float* const logits = floats(rows * vocab);
  ops->CrossEntropy(logits, tokens.data(), rows, vocab, loss);
  ops->CrossEntropyBackward(logits, tokens.data(), 0.25f, kOptions, rows, vocab, loss);
  const VocabularyPart part{
      .first = 3, .count = vocab - 5, .columns = vocab, .vocabulary = vocab + 7};
  std::vector<LogitStatistics> own(static_cast<size_t>(rows)), joined(own.size());
  float* const part_logits = floats(rows * vocab);
  ops->VocabularyStatistics(part_logits, tokens.data(), part, own.data(), rows);
  ops->JoinStatistics(own.data(), 1, tokens.data(), joined.data(), rows, loss);
  ops->VocabularyGradient(part_logits, tokens.data(), part, own.data(), joined.data(), 0.25f,
                          kOptions, rows);
  const int64_t count = rows * channels;
  const AdamWState state{floats(count), floats(count), arrays.Of(Floats(count, 0.5f))};
  const AdamWParams params{.lr = 1e-3, .step = 3, .grad_scale = 0.7f};
  ops->AdamW(grad(count), state, state, param(count).data, dtype, params, count);
  ops->AddRounded(grad(count).data, param(count).data, dtype, count);
  ops->Cast(param(count).data, dtype, arrays.Room(count), DType::kF32, count);
  ExactSum squares;
  ops->AddSquares(param(count).data, dtype, count, squares);
  arrays.Of({static_cast<float>(loss), static_cast<float>(squares.Value())});
  return arrays.Contents();
}

// Channels that packs of four divide, and that they do not.
TEST(CudaKernels, BitsDoNotDependOnAlignment) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t channels : {40, 33}) {
      const std::vector<std::byte> aligned = RunAll(0, dtype, channels);
      for (const size_t off : {1, 2}) {
        EXPECT_TRUE(RunAll(off, dtype, channels) == aligned) << off << NameOf(dtype) << channels;
      }
    }
  }
}

// Each element's bits are its own, however a range is cut into calls.
TEST(CudaKernels, ElementsDoNotDependOnHowRangesAreCut) {
  constexpr int64_t kCount = 203, kCut = 67;
  const auto ops = simt::MakeSimtOps();
  const Floats x = Draw(2).Normal(kCount, 3);
  Floats whole(kCount), cut(kCount), whole_dx(kCount), cut_dx(kCount);
  std::vector<BF16> whole_halves(kCount), cut_halves(kCount);
  const auto run = [&](int64_t begin, int64_t end, Floats& y, Floats& dx, std::vector<BF16>& half) {
    ops->GeluForward(&x[begin], &y[begin], end - begin);
    ops->GeluBackward(&x[begin], &x[begin], &dx[begin], end - begin);
    ops->Cast(&x[begin], DType::kF32, &half[begin], DType::kBF16, end - begin);
  };
  run(0, kCount, whole, whole_dx, whole_halves);
  run(0, kCut, cut, cut_dx, cut_halves);
  run(kCut, kCount, cut, cut_dx, cut_halves);
  EXPECT_TRUE(SameBits(cut, whole));
  EXPECT_TRUE(SameBits(cut_dx, whole_dx));
  EXPECT_EQ(std::memcmp(cut_halves.data(), whole_halves.data(), kCount * sizeof(BF16)), 0);
}

}  // namespace
}  // namespace sherd
