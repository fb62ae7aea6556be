#include "kernels/cpu/fold.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

TEST(Fold, OnTheCallingThreadHasTheBitsOfTheOperation) {
  const auto ops = MakeCpuOps(2);
  for (const int64_t count : {0, 1, 7, 16, 33, 70'001}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Draw draw(static_cast<uint32_t>(count));
      Stored sums(draw.Normal(count), dtype);
      Stored serial = sums;
      const Stored src(draw.Normal(count), dtype);
      ops->AddRounded(sums.data(), src.data(), dtype, count);
      AddRoundedSerial(serial.data(), src.data(), dtype, count);
      EXPECT_EQ(serial, sums);
    }
  }
}

}  // namespace
}  // namespace sherd
