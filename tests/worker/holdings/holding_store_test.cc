#include "worker/holdings/holding_store.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

constexpr int64_t kSlotBytes = 128;

std::shared_ptr<HoldingSegment> MakeIn(HoldingStore& store, int64_t epoch, int owner,
                                       const std::string& job = "job-1") {
  auto segment = store.Make({job, epoch, 2, owner}, kSlotBytes, "secret");
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
  old->Complete(0, 5, 11);
  const auto empty = MakeIn(store, 1, 1);
  store.Seal("job-1", 2);
  EXPECT_EQ(store.Make({"job-1", 2, 2, 1}, kSlotBytes, "").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.Keep(old, "").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(store.Find(old->key()), nullptr);
  EXPECT_EQ(store.Find(empty->key()), nullptr) << "it holds nothing, and never will";
  EXPECT_EQ(store.Find({"job-1", 2, 2, 1}), nullptr);
  MakeIn(store, 3, 0);
  MakeIn(store, 1, 0, "job-2");
  // An older answer that comes late opens nothing.
  store.Seal("job-1", 1);
  EXPECT_FALSE(store.Make({"job-1", 2, 2, 1}, kSlotBytes, "").ok());
}

TEST(HoldingStore, DropsWhatIsNotNeededAnyMore) {
  HoldingStore store;
  MakeIn(store, 1, 0);
  MakeIn(store, 2, 0);
  MakeIn(store, 1, 0, "job-2");
  store.Retain("job-1", 2);
  // An owner that was frozen may come with it only now.
  EXPECT_EQ(store.Make({"job-1", 1, 2, 1}, kSlotBytes, "").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.Find({"job-1", 1, 2, 0}), nullptr);
  EXPECT_NE(store.Find({"job-1", 2, 2, 0}), nullptr);
  store.Forget("job-1");
  EXPECT_EQ(store.Find({"job-1", 2, 2, 0}), nullptr);
  EXPECT_FALSE(store.Make({"job-1", 3, 2, 0}, kSlotBytes, "").ok());
  EXPECT_FALSE(store.empty());
  store.Forget("job-2");
  EXPECT_TRUE(store.empty());
}

v1::Hold HoldOf(int64_t epoch, const std::vector<int>& owners, const std::string& job = "job-1") {
  v1::Hold hold;
  hold.set_job_id(job);
  hold.set_epoch(epoch);
  hold.set_world(2);
  hold.set_secret("secret");
  for (const int owner : owners) hold.add_owners(owner);
  return hold;
}

// F46
TEST(HoldingStore, AdmitsThoseThatItWasToldOf) {
  HoldingStore store;
  const HoldingKey key{"job-1", 2, 2, 1};
  EXPECT_EQ(store.Admit(key, "secret").status().code(), absl::StatusCode::kNotFound);
  store.Expect(HoldOf(2, {1}));
  EXPECT_TRUE(store.Admit(key, "secret").ok());
  EXPECT_EQ(store.Admit(key, "secre").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(store.Admit({"job-1", 2, 2, 0}, "secret").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(store.Admit({"job-1", 2, 4, 1}, "secret").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(store.Admit({"job-1", 3, 2, 1}, "secret").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Admit({"job-1", 1, 2, 1}, "secret").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.Admit({"job-2", 2, 2, 1}, "secret").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.MakeFor({"job-1", 2, 2, 0}, kSlotBytes, "secret").status().code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(store.MakeFor(key, kSlotBytes, "secret").ok());
  EXPECT_EQ(store.MakeFor(key, kSlotBytes, "secret").status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store.BytesFor("job-1", 2), store.Find(key)->bytes());
  // Its own are not counted.
  MakeIn(store, 2, 0);
  EXPECT_EQ(store.BytesFor("job-1", 2), store.Find(key)->bytes());
}

// Whoever waits for the owner's next words hears that there will be none.
TEST(HoldingStore, EndsWhatItExpectsWithTheEpoch) {
  HoldingStore store;
  const auto expect = [&](int64_t epoch) {
    store.Expect(HoldOf(epoch, {1}));
    const auto over = store.Admit({"job-1", epoch, 2, 1}, "secret");
    EXPECT_TRUE(over.ok()) << over.status();
    return *over;
  };
  const auto first = expect(1);
  // Said again.
  store.Expect(HoldOf(1, {0, 1}));
  store.Seal("job-1", 0);
  store.Retain("job-1", 1);
  EXPECT_FALSE(first->is_set());
  store.Seal("job-1", 1);
  EXPECT_TRUE(first->is_set());
  // Nothing is expected of an epoch that has ended.
  store.Expect(HoldOf(1, {1}));
  EXPECT_EQ(store.Admit({"job-1", 1, 2, 1}, "secret").status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto second = expect(2);
  store.Retain("job-1", 3);
  EXPECT_TRUE(second->is_set());
  const auto third = expect(3);
  const auto fourth = expect(4);
  EXPECT_TRUE(third->is_set());
  store.Expect(HoldOf(3, {1}));
  EXPECT_FALSE(fourth->is_set());
  store.Forget("job-1");
  EXPECT_TRUE(fourth->is_set());
  store.Expect(HoldOf(5, {1}));
  EXPECT_FALSE(store.Admit({"job-1", 5, 2, 1}, "secret").ok());
}

TEST(HoldingStore, OpensWhatItHoldsToThoseWhoKnowTheSecret) {
  HoldingStore store;
  const auto segment = MakeIn(store, 1, 0);
  EXPECT_TRUE(store.FindFor(segment->key(), "secret").ok());
  EXPECT_EQ(store.FindFor(segment->key(), "Secret").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(store.FindFor({"job-1", 1, 2, 1}, "secret").status().code(),
            absl::StatusCode::kNotFound);
  const HoldingKey open{"job-1", 1, 2, 1};
  ASSERT_TRUE(store.Make(open, kSlotBytes, "").ok());
  EXPECT_EQ(store.FindFor(open, "").status().code(), absl::StatusCode::kPermissionDenied);
}

// However jobs are called, those that have just ended are remembered.
// Owners that come at the same time do not all count on the last free memory.
TEST(HoldingStore, TakesNoMoreMemoryThanThereIs) {
  int64_t available = 0;
  HoldingStore store([&] { return available; });
  store.Expect(HoldOf(1, {0, 1}));
  EXPECT_EQ(store.MakeFor({"job-1", 1, 2, 0}, kSlotBytes, "secret").status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Make({"job-1", 1, 2, 0}, kSlotBytes, "secret").status().code(),
            absl::StatusCode::kResourceExhausted);
  available = int64_t{1} << 20;
  EXPECT_TRUE(store.MakeFor({"job-1", 1, 2, 0}, kSlotBytes, "secret").ok());
}

TEST(HoldingStore, ForgetsFirstThatAJobHasEndedThatEndedFirst) {
  HoldingStore store;
  store.Seal("job-0 lives", 3);
  store.Forget("job-z, the first");
  for (int job = 0; job < 255; ++job) store.Forget(absl::StrCat("job-b", job));
  const auto refuses = [&](const std::string& job) {
    return !store.Make({job, 1, 2, 0}, kSlotBytes, "").ok();
  };
  EXPECT_TRUE(refuses("job-z, the first"));
  store.Forget("job-a, the last");
  EXPECT_TRUE(refuses("job-a, the last"));
  EXPECT_TRUE(refuses("job-b0"));
  EXPECT_TRUE(refuses("job-0 lives"));
  EXPECT_FALSE(refuses("job-z, the first"));
}

}  // namespace
}  // namespace sherd
