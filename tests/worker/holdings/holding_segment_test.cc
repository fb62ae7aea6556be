#include "worker/holdings/holding_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

constexpr int64_t kSlotBytes = 1000;
const HoldingKey kKey{"job-1", 3, 4, 2};

std::shared_ptr<HoldingSegment> Make() {
  absl::StatusOr<std::shared_ptr<HoldingSegment>> segment =
      HoldingSegment::Create(kKey, kSlotBytes);
  EXPECT_TRUE(segment.ok()) << segment.status();
  return *std::move(segment);
}

FileDescriptor Copy(const HoldingSegment& segment) {
  return FileDescriptor(::fcntl(segment.descriptor(), F_DUPFD_CLOEXEC, 0));
}

v1::StepReport Step(int64_t step) {
  v1::StepReport report;
  report.set_step(step);
  report.set_loss(1.0 / static_cast<double>(step));
  report.set_grad_norm(0.25);
  report.set_tokens(64 * step);
  return report;
}

TEST(HoldingSegment, HoldsNothingBeforeAVersionIsComplete) {
  const auto segment = Make();
  EXPECT_FALSE(segment->Held(0).has_value());
  EXPECT_FALSE(segment->Held(1).has_value());
  EXPECT_TRUE(segment->Complete(1, 7, segment->Checksum(1), {3, 0.5}));
  EXPECT_EQ(segment->Figures(1).skipped_windows, 3);
  EXPECT_EQ(segment->Figures(1).loss, 0.5);
  const std::optional<v1::Holding> held = segment->Held(1);
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->epoch(), 3);
  EXPECT_EQ(held->world(), 4);
  EXPECT_EQ(held->owner(), 2);
  EXPECT_EQ(held->step(), 7);
  EXPECT_EQ(held->checksum(), segment->Checksum(1));
  EXPECT_EQ(segment->FindStep(7), 1);
  EXPECT_EQ(segment->FindStep(0), -1);
  segment->Invalidate(1);
  EXPECT_FALSE(segment->Held(1).has_value());
  segment->Invalidate(1);
  EXPECT_FALSE(segment->Held(1).has_value());
}

TEST(HoldingSegment, MakesItsChecksumInPiecesToo) {
  constexpr int64_t kBytes = 2 * kWatchedBytes + 5;
  const auto segment = *HoldingSegment::Create(kKey, kBytes);
  for (int64_t at = 0; at < kBytes; at += 1001) segment->slot(1)[at] = std::byte(at % 251);
  std::vector<int64_t> pieces;
  const absl::StatusOr<uint64_t> checksum = segment->Checksum(1, [&](int64_t bytes) {
    pieces.push_back(bytes);
    return absl::OkStatus();
  });
  ASSERT_TRUE(checksum.ok());
  EXPECT_EQ(*checksum, segment->Checksum(1));
  EXPECT_EQ(pieces, (std::vector<int64_t>{kWatchedBytes, kWatchedBytes, 5}));
  EXPECT_EQ(
      segment->Checksum(1, [](int64_t) { return absl::AbortedError("enough"); }).status().code(),
      absl::StatusCode::kAborted);
}

// Another process's mapping is the same memory, and lives on when the owner's is gone.
TEST(HoldingSegment, OutlivesItsOwner) {
  std::shared_ptr<HoldingSegment> owner = Make();
  const auto holder = HoldingSegment::Map(kKey, kSlotBytes, Copy(*owner));
  ASSERT_TRUE(holder.ok()) << holder.status();
  std::fill(owner->slot(0), owner->slot(0) + kSlotBytes, std::byte{42});
  owner->Report(Step(1));
  owner->Complete(0, 1, owner->Checksum(0));
  owner.reset();
  EXPECT_EQ((*holder)->FindStep(1), 0);
  EXPECT_EQ((*holder)->Held(0)->checksum(), (*holder)->Checksum(0));
  EXPECT_EQ((*holder)->slot(0)[kSlotBytes - 1], std::byte{42});
  ASSERT_EQ((*holder)->Reports(0, 1).size(), 1u);
}

// F27: a writer that was frozen while others told what they hold changes nothing any more.
TEST(HoldingSegment, BehindAFenceNoSlotIsMarked) {
  const auto segment = Make();
  const auto holder = HoldingSegment::Map(kKey, kSlotBytes, Copy(*segment));
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(segment->Complete(0, 5, 50));
  EXPECT_TRUE(segment->Invalidate(1));
  (*holder)->Fence();
  EXPECT_FALSE(segment->Complete(1, 6, 60));
  EXPECT_FALSE(segment->Invalidate(0));
  EXPECT_EQ((*holder)->Held(0)->step(), 5);
  EXPECT_FALSE((*holder)->Held(1).has_value());
  (*holder)->Fence();
  (*holder)->Discard(0);
  EXPECT_FALSE(segment->Held(0).has_value());
}

TEST(HoldingSegment, KeepsTheReportsOfTheLastSteps) {
  const auto segment = Make();
  const int64_t last = 2 * HoldingSegment::kReports + 3;
  for (int64_t step = 1; step <= last; ++step) segment->Report(Step(step));
  const std::vector<v1::StepReport> reports = segment->Reports(last - 5, last - 1);
  ASSERT_EQ(reports.size(), 4u);
  for (size_t i = 0; i < reports.size(); ++i) {
    const int64_t step = last - 4 + static_cast<int64_t>(i);
    EXPECT_EQ(reports[i].step(), step);
    EXPECT_EQ(reports[i].loss(), 1.0 / static_cast<double>(step));
    EXPECT_EQ(reports[i].tokens(), 64 * step);
  }
  EXPECT_EQ(segment->Reports(0, last).size(), static_cast<size_t>(HoldingSegment::kReports));
  EXPECT_TRUE(segment->Reports(last, last).empty());
}

// F46: what is passed on by another process is looked at before it is used.
TEST(HoldingSegment, IsNotMappedUnlessItIsWhatWasNamed) {
  const auto segment = Make();
  const auto refused = [&](const HoldingKey& key, int64_t bytes, FileDescriptor descriptor) {
    return HoldingSegment::Map(key, bytes, std::move(descriptor)).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(kKey, kSlotBytes, FileDescriptor()));
  EXPECT_TRUE(refused(kKey, -1, Copy(*segment)));
  for (const int64_t bytes : {int64_t{-1}, INT64_MAX, INT64_MAX / 2}) {
    EXPECT_EQ(HoldingSegment::Create(kKey, bytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(refused(kKey, INT64_MAX, Copy(*segment)));
  EXPECT_TRUE(refused(kKey, kSlotBytes * 10, Copy(*segment)));
  for (const HoldingKey& other :
       {HoldingKey{"job-1", 4, 4, 2}, HoldingKey{"job-1", 3, 5, 2}, HoldingKey{"job-1", 3, 4, 1}}) {
    EXPECT_TRUE(refused(other, kSlotBytes, Copy(*segment)));
  }
  // A file that can be cut would be a SIGBUS.
  FileDescriptor file(::memfd_create("file", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), segment->bytes()), 0);
  EXPECT_TRUE(refused(kKey, kSlotBytes, std::move(file)));
}

}  // namespace
}  // namespace sherd
