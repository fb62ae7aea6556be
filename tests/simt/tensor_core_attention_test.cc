// Attention on tensor cores against the reference, of inputs that bf16 holds.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/values.h"
#include "tests/simt/simt_ops.h"

namespace sherd {
namespace {

constexpr AttentionShape kShapes[] = {{1, 1, 1, 1, 64},   {2, 7, 2, 1, 64},   {1, 64, 2, 2, 64},
                                      {1, 65, 1, 1, 128}, {1, 200, 4, 2, 64}, {1, 130, 2, 1, 128},
                                      {0, 3, 1, 1, 64}};

int64_t OutElements(const AttentionShape& shape) {
  return shape.batch * shape.tokens * shape.heads * shape.head_size;
}

// An array of a type at some bytes past a 16-byte boundary.
class Placed {
 public:
  Placed(const Stored& values, size_t bytes_off)
      : bytes_(static_cast<size_t>(values.elements() * SizeOf(values.dtype()))),
        room_(bytes_ + 32) {
    data_ = room_.data();
    while (reinterpret_cast<uintptr_t>(data_) % 16 != 0) ++data_;
    data_ += bytes_off;
    if (bytes_ > 0) std::memcpy(data_, values.data(), bytes_);
  }
  std::byte* data() { return data_; }
  size_t bytes() const { return bytes_; }
  Stored Values(DType dtype) const {
    Stored values = Stored::Unset(static_cast<int64_t>(bytes_) / SizeOf(dtype), dtype);
    if (bytes_ > 0) std::memcpy(values.data(), data_, bytes_);
    return values;
  }

 private:
  size_t bytes_;
  std::vector<std::byte> room_;
  std::byte* data_;
};

struct Result {
  Stored out;
  Floats lse;
};

Result Forward(const Stored& qkv, const AttentionShape& shape, size_t elements_off) {
  const DType dtype = qkv.dtype();
  const size_t off = elements_off * static_cast<size_t>(SizeOf(dtype));
  Placed from(qkv, off), to(Stored::Unset(OutElements(shape), dtype), off);
  Floats lse(static_cast<size_t>(shape.batch * shape.tokens * shape.heads));
  simt::Orders().Run(
      {{to.data(), to.bytes(), true}, {lse.data(), lse.size() * sizeof(float), true}},
      [&](CudaKernels& on) {
        on.TensorCoreAttentionForward(from.data(), to.data(), dtype, lse.data(), shape);
      });
  return {to.Values(dtype), lse};
}

TEST(TensorCoreAttention, ForwardIsTheReference) {
  for (const AttentionShape& shape : kShapes) {
    const int64_t elements = shape.batch * shape.tokens * shape.qkv_channels();
    const Stored halves(Draw(1).Normal(elements), DType::kBF16);
    const auto expected = reference::AttentionForward(halves.values(), shape);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Floats values;
      for (const double value : halves.values()) values.push_back(static_cast<float>(value));
      const Result result = Forward(Stored(values, dtype), shape, 0);
      // Every weight is rounded to bf16 once, by at most 2^-9 of itself, and their sum is 1: off by
      // 2^-9 of the largest value, which a mean of values may be much smaller than.
      ExpectClose(result.out.values(), expected.out, 1.0 / 512 + ToleranceOf(dtype), "out", 4);
      // Scores are products of bf16 summed in fp32.
      ExpectClose(result.lse, expected.lse, kFloatTolerance, "lse");
    }
  }
}

// In every order of threads and blocks. How near it is to the rounded function is the device's test
// (tests/cuda/bf16_attention_test.cc).
TEST(TensorCoreAttention, BackwardIsTheReference) {
  for (const AttentionShape& shape : kShapes) {
    const int64_t elements = shape.batch * shape.tokens * shape.qkv_channels();
    Draw draw(4);
    const Stored qkv(draw.Normal(elements), DType::kF32);
    const Floats dout = draw.Normal(OutElements(shape));
    const Result forward = Forward(qkv, shape, 0);
    Floats values, out, dqkv(static_cast<size_t>(elements));
    for (const double value : qkv.values()) values.push_back(static_cast<float>(value));
    for (const double value : forward.out.values()) out.push_back(static_cast<float>(value));
    simt::Orders().Run({{dqkv.data(), dqkv.size() * sizeof(float), true}}, [&](CudaKernels& on) {
      on.AttentionBackward(dout.data(), values.data(), out.data(), forward.lse.data(), dqkv.data(),
                           shape, /*of_tensor_cores=*/true);
    });
    // Each factor is rounded by at most 2^-9 of itself; a few factors, of which the largest counts.
    ExpectClose(dqkv, reference::AttentionBackward(ToDoubles(dout), qkv.values(), shape), 4.0 / 512,
                "dqkv", 4);
  }
}

TEST(TensorCoreAttention, BitsDoNotDependOnAlignment) {
  const AttentionShape shape{.batch = 1, .tokens = 70, .heads = 2, .kv_heads = 1, .head_size = 64};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Stored qkv(Draw(2).Normal(70 * shape.qkv_channels()), dtype);
    const Result aligned = Forward(qkv, shape, 0), off = Forward(qkv, shape, 1);
    EXPECT_EQ(off.out, aligned.out);
    EXPECT_TRUE(SameBits(off.lse, aligned.lse));
  }
}

// A query's output does not change when later tokens do.
TEST(TensorCoreAttention, IsCausalToTheBit) {
  const AttentionShape shape{.batch = 1, .tokens = 150, .heads = 1, .kv_heads = 1, .head_size = 64};
  Floats values = Draw(3).Normal(150 * shape.qkv_channels());
  const Doubles before = Forward(Stored(values, DType::kF32), shape, 0).out.values();
  for (size_t i = 100 * 3 * 64; i < values.size(); ++i) values[i] = 1e15f;
  const Doubles after = Forward(Stored(values, DType::kF32), shape, 0).out.values();
  for (size_t i = 0; i < 100 * 64; ++i) ASSERT_EQ(after[i], before[i]) << i;
}

}  // namespace
}  // namespace sherd
