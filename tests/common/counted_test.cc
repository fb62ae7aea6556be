#include "common/counted.h"

#include "gtest/gtest.h"

namespace sherd {
namespace {

TEST(Counted, OneThingHasNoPlural) {
  EXPECT_EQ(Counted(0, "worker"), "0 workers");
  EXPECT_EQ(Counted(1, "worker"), "1 worker");
  EXPECT_EQ(Counted(21, "worker"), "21 workers");
  EXPECT_EQ(Counted(1, "micro-batch", "micro-batches"), "1 micro-batch");
  EXPECT_EQ(Counted(2, "micro-batch", "micro-batches"), "2 micro-batches");
}

}  // namespace
}  // namespace sherd
