#include "worker/holdings/holding_store.h"

#include <gtest/gtest.h>

#include <vector>

namespace sherd {
namespace {

constexpr int64_t kSlotBytes = 128;

std::shared_ptr<HoldingSegment> MakeIn(HoldingStore& store, int64_t epoch, int owner,
                                       const std::string& job = "job-1") {
  auto segment = store.Make({job, epoch, 2, owner}, kSlotBytes);
  EXPECT_TRUE(segment.ok()) << segment.status();
  return *std::move(segment);
}

TEST(HoldingStore, TellsTheWholeVersionsOfOneJob) {
  HoldingStore store;
  MakeIn(store, 1, 0)->Complete(0, 5, 11);
  const auto second = MakeIn(store, 2, 1);
  second->Complete(0, 6, 12);
  second->Complete(1, 7, 13);
  second->Invalidate(0);
  MakeIn(store, 1, 0, "job-2")->Complete(0, 9, 14);
  const std::vector<v1::Holding> held = store.Seal("job-1", 2);
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].step(), 5);
  EXPECT_EQ(held[0].epoch(), 1);
  EXPECT_EQ(held[1].step(), 7);
  EXPECT_EQ(held[1].owner(), 1);
}

// F25, F27: what belongs to an epoch that has ended here is not taken in any more.
TEST(HoldingStore, TakesInNothingOfASealedEpoch) {
  HoldingStore store;
  const auto old = MakeIn(store, 1, 0);
  store.Seal("job-1", 2);
  EXPECT_EQ(store.Make({"job-1", 2, 2, 1}, kSlotBytes).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.Keep(old).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(store.Find(old->key()), nullptr);
  EXPECT_EQ(store.Find({"job-1", 2, 2, 1}), nullptr);
  MakeIn(store, 3, 0);
  MakeIn(store, 1, 0, "job-2");
  // An older answer that comes late opens nothing.
  store.Seal("job-1", 1);
  EXPECT_FALSE(store.Make({"job-1", 2, 2, 1}, kSlotBytes).ok());
}

TEST(HoldingStore, DropsWhatIsNotNeededAnyMore) {
  HoldingStore store;
  MakeIn(store, 1, 0);
  MakeIn(store, 2, 0);
  MakeIn(store, 1, 0, "job-2");
  store.Retain("job-1", 2);
  EXPECT_EQ(store.Find({"job-1", 1, 2, 0}), nullptr);
  EXPECT_NE(store.Find({"job-1", 2, 2, 0}), nullptr);
  store.Forget("job-1");
  EXPECT_EQ(store.Find({"job-1", 2, 2, 0}), nullptr);
  EXPECT_FALSE(store.Make({"job-1", 3, 2, 0}, kSlotBytes).ok());
  EXPECT_FALSE(store.empty());
  store.Forget("job-2");
  EXPECT_TRUE(store.empty());
}

}  // namespace
}  // namespace sherd
