#include "worker/device/known_peaks.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

// F56: a share of another card's peak would be wrong.
TEST(KnownPeaks, AreOfTheCardAndOfNoneThatIsCalledAlike) {
  EXPECT_EQ(KnownPeakFlops("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(KnownPeakFlops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(KnownPeakFlops("NVIDIA H200 NVL"), 835e12);
  EXPECT_EQ(KnownPeakFlops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(KnownPeakFlops("NVIDIA GB200"), 2500e12);
  EXPECT_EQ(KnownPeakFlops("NVIDIA B200"), 2250e12);
  for (const char* unknown : {"", "NVIDIA H20", "NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090",
                              "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "GRID A100-10C",
                              "NVIDIA H100-20C", "software device"}) {
    EXPECT_EQ(KnownPeakFlops(unknown), 0) << unknown;
  }
}

}  // namespace
}  // namespace sherd
