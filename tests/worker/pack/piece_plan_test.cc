#include "worker/pack/piece_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sherd {

bool operator==(const PlannedRange& a, const PlannedRange& b) {
  return a.file == b.file && a.begin == b.begin && a.end == b.end;
}

namespace {

using testing::ElementsAre;

TEST(PlanPieces, CutsLargeFilesAndPutsSmallOnesTogether) {
  EXPECT_THAT(PlanPieces({25, 3, 0, 4, 5, 2}, 10, false),
              ElementsAre(PlannedPiece{{0, 0, 10}}, PlannedPiece{{0, 10, 20}},
                          PlannedPiece{{0, 20, 25}, {1, 0, 3}, {2, 0, 0}, {3, 0, 4}},
                          PlannedPiece{{4, 0, 5}, {5, 0, 2}}));
  EXPECT_THAT(PlanPieces({20}, 10, false),
              ElementsAre(PlannedPiece{{0, 0, 10}}, PlannedPiece{{0, 10, 20}}));
  EXPECT_THAT(PlanPieces({25, 3}, 10, true),
              ElementsAre(PlannedPiece{{0, 0, 25}}, PlannedPiece{{1, 0, 3}}));
  EXPECT_THAT(PlanPieces({0}, 10, false), ElementsAre(PlannedPiece{{0, 0, 0}}));
}

}  // namespace
}  // namespace sherd
