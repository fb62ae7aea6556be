// A rank's shard, stored by a process on another host.
#include "worker/holdings/remote_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tests/worker/holdings/holding_host.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/lost_holder.h"
#include "worker/holdings/version_stream.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSlotBytes = 300'000;
const HoldingKey kKey{"job-1", 1, 2, 0};

// A rank's own process, and what it stores.
struct Owner {
  explicit Owner(int64_t slot_bytes = kSlotBytes, const HoldingKey& key = kKey)
      : segment(*HoldingSegment::Create(key, slot_bytes)) {}

  absl::StatusOr<std::unique_ptr<RemoteCopy>> Open(const std::string& address,
                                                   const std::string& secret = kSecret) const {
    return RemoteCopy::Open(address, *segment, secret, abort);
  }
  // As an update and StepCommits do.
  void StoreStep(int slot, int64_t step) {
    segment->Invalidate(slot);
    std::fill(segment->slot(slot), segment->slot(slot) + segment->slot_bytes(),
              static_cast<std::byte>(step));
    segment->slot(slot)[17] = std::byte{99};
    v1::StepReport report;
    report.set_step(step);
    report.set_loss(1.0 / static_cast<double>(step));
    segment->Report(report);
    segment->Complete(slot, step, segment->Checksum(slot), {step * 2, 0.5});
  }

  std::shared_ptr<HoldingSegment> segment;
  FormationAbort abort;
};

absl::Status Copy(RemoteCopy& copy, int slot, int64_t reports_after) {
  const absl::Status sent = copy.Send(slot, reports_after);
  return sent.ok() ? copy.AwaitStored() : sent;
}

TEST(RemoteCopy, IsStoredInMemoryOfTheOtherProcess) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  auto owner = std::make_unique<Owner>();
  std::unique_ptr<RemoteCopy> copy = *owner->Open(holder.address());
  owner->StoreStep(0, 1);
  owner->StoreStep(1, 2);
  ASSERT_TRUE(Copy(*copy, 1, /*reports_after=*/0).ok());
  owner->StoreStep(0, 3);
  ASSERT_TRUE(Copy(*copy, 0, /*reports_after=*/2).ok());
  EXPECT_EQ(copy->sent_bytes(), 2 * kSlotBytes);
  const HoldingKey key = owner->segment->key();
  copy.reset();
  owner.reset();

  const std::shared_ptr<HoldingSegment> stored = holder.store.Find(key);
  ASSERT_NE(stored, nullptr);
  EXPECT_EQ(stored->FindStep(3), 0);
  EXPECT_EQ(stored->FindStep(2), 1);
  EXPECT_EQ(stored->Held(0)->checksum(), stored->Checksum(0));
  EXPECT_EQ(stored->slot(0)[17], std::byte{99});
  EXPECT_EQ(stored->slot(0)[kSlotBytes - 1], std::byte{3});
  EXPECT_EQ(stored->Figures(0).skipped_windows, 6);
  EXPECT_EQ(stored->Figures(0).loss, 0.5);
  const std::vector<v1::StepReport> reports = stored->Reports(0, 3);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[2].loss(), 1.0 / 3);
  EXPECT_EQ(holder.store.BytesFor(key.job_id, key.epoch), stored->bytes());
  EXPECT_EQ(holder.store.BytesFor(key.job_id, key.epoch + 1), 0);
  EXPECT_TRUE(Eventually([&] { return holder.server->links() == 0; }));
}

TEST(RemoteCopy, TellsHowFarItHasCome) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  Owner owner(3'000'000);
  owner.StoreStep(0, 1);
  int64_t sent = 0;
  int pieces = 0;
  const std::unique_ptr<RemoteCopy> copy =
      *RemoteCopy::Open(holder.address(), *owner.segment, kSecret, owner.abort, [&](int64_t bytes) {
        sent += bytes;
        ++pieces;
        return absl::OkStatus();
      });
  ASSERT_TRUE(Copy(*copy, 0, /*reports_after=*/0).ok());
  EXPECT_EQ(sent, 3'000'000);
  // Slowly, over such a network as may pass for one that moves.
  EXPECT_GE(pieces, 10);
}

TEST(RemoteCopy, BringsAllReportsThatAreKept) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  Owner owner;
  for (int64_t step = 1; step <= 700; ++step) owner.StoreStep(step % 2, step);
  const std::unique_ptr<RemoteCopy> copy = *owner.Open(holder.address());
  ASSERT_TRUE(Copy(*copy, 0, /*reports_after=*/0).ok());
  EXPECT_EQ(holder.store.Find(kKey)->Reports(0, 700).size(), 700u);
}

// The coordinator's words to the holder may come after those to the owner.
TEST(RemoteCopy, ComesAgainToAHolderThatWasNotToldYet) {
  HoldingHost holder;
  const Owner owner;
  absl::Status opened;
  std::thread opens([&] { opened = owner.Open(holder.address()).status(); });
  holder.Expect(kKey, {0});
  opens.join();
  EXPECT_TRUE(opened.ok()) << opened;

  // Surely refused once.
  std::string address;
  const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
  std::thread comes([&] { opened = owner.Open(address).status(); });
  LinkStream first(AcceptOne(listener.get()), {});
  EXPECT_TRUE(first.Receive<LinkHolding>().ok());
  first.Close(absl::NotFoundError("not told"));
  LinkStream second(AcceptOne(listener.get()), {});
  EXPECT_TRUE(second.Receive<LinkHolding>().ok());
  EXPECT_TRUE(second.Send(LinkStored{}).ok());
  comes.join();
  EXPECT_TRUE(opened.ok()) << opened;
}

// F46: who does not know the secret, or is not expected, has nothing stored.
TEST(RemoteCopy, IsRefusedToStrangers) {
  HoldingHost holder;
  holder.Expect(kKey, {1});
  const Owner expected(kSlotBytes, {"job-1", 1, 2, 1});
  const Owner other;
  const Owner of_other_world(kSlotBytes, {"job-1", 1, 4, 1});
  for (const absl::Status& refused :
       {expected.Open(holder.address(), "another").status(),
        expected.Open(holder.address(), "").status(), other.Open(holder.address()).status(),
        of_other_world.Open(holder.address()).status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(holder.address()));
  }
  EXPECT_TRUE(holder.store.empty());
  EXPECT_TRUE(expected.Open(holder.address()).ok());
  // It is stored already.
  EXPECT_EQ(expected.Open(holder.address()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(RemoteCopy, IsRefusedWhereThereIsNoMemoryForIt) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  LinkStream link = ConnectTo(holder.address());
  for (const int64_t bytes : {INT64_MAX, INT64_MAX / 5, int64_t{-1}}) {
    LinkStream one = ConnectTo(holder.address());
    ASSERT_TRUE(one.Send(WishFor(LinkHolding::Wish::kStore, kKey, bytes, kSecret)).ok());
    EXPECT_FALSE(one.Receive<LinkStored>().ok()) << bytes;
  }
  EXPECT_TRUE(holder.store.empty());
}

// F27: a holder that has told what it holds stores nothing more of that epoch.
TEST(RemoteCopy, IsNotWrittenBehindAFence) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  Owner owner;
  const std::unique_ptr<RemoteCopy> copy = *owner.Open(holder.address());
  owner.StoreStep(1, 1);
  ASSERT_TRUE(Copy(*copy, 1, 0).ok());
  EXPECT_EQ(holder.store.Seal("job-1", 1).size(), 1u);
  // The link ends by itself.
  EXPECT_TRUE(Eventually([&] { return holder.server->links() == 0; }));
  owner.StoreStep(0, 2);
  const absl::Status sealed = Copy(*copy, 0, 1);
  EXPECT_EQ(sealed.code(), absl::StatusCode::kAborted) << sealed;
  EXPECT_THAT(std::string(sealed.message()), HasSubstr(holder.address()));
  const std::shared_ptr<HoldingSegment> stored = holder.store.Find(kKey);
  EXPECT_EQ(stored->FindStep(1), 1);
  EXPECT_EQ(stored->FindStep(2), -1);
  // Nor is a new one begun.
  EXPECT_EQ(owner.Open(holder.address()).status().code(), absl::StatusCode::kAborted);
}

// The fence alone holds, whatever the link's thread has heard.
TEST(RemoteCopy, IsNotWrittenWhenTheFenceComesFirst) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  Owner owner;
  const std::unique_ptr<RemoteCopy> copy = *owner.Open(holder.address());
  const std::shared_ptr<HoldingSegment> stored = holder.store.Find(kKey);
  stored->Fence();
  owner.StoreStep(1, 1);
  EXPECT_EQ(Copy(*copy, 1, 0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(stored->FindStep(1), -1);
}

TEST(RemoteCopy, EndsWithItsHolder) {
  Owner owner;
  owner.StoreStep(1, 1);
  std::string address;
  std::unique_ptr<RemoteCopy> copy;
  {
    HoldingHost holder;
    holder.Expect(kKey, {0});
    address = holder.address();
    copy = *owner.Open(address);
  }
  const absl::Status gone = Copy(*copy, 1, 0);
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr(address));
  EXPECT_EQ(LostHolderOf(gone), address);
  const absl::Status refused = owner.Open(address).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(LostHolderOf(refused), address);
}

// F22: in the middle of a version too large for what lies between.
TEST(RemoteCopy, EndsWithItsHolderInTheMiddleOfAVersion) {
  Owner owner(24 << 20);
  owner.StoreStep(1, 1);
  std::string address;
  const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
  std::thread holder([&] {
    LinkStream link(AcceptOne(listener.get()), {});
    EXPECT_TRUE(link.Receive<LinkHolding>().ok());
    EXPECT_TRUE(link.Send(LinkStored{}).ok());
    EXPECT_TRUE(link.Receive<LinkVersion>().ok());
  });
  const std::unique_ptr<RemoteCopy> copy = *owner.Open(address);
  const absl::Status gone = Copy(*copy, 1, 0);
  holder.join();
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
}

// F22: a holder that stops reading holds nobody up whose epoch has ended.
TEST(RemoteCopy, DoesNotWaitForAMuteHolderOnceTheEpochHasEnded) {
  for (const bool leaves : {false, true}) {
    Owner owner(24 << 20);
    owner.StoreStep(1, 1);
    std::string address;
    const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
    std::unique_ptr<RemoteCopy> copy;
    absl::Notification opened;
    absl::Notification left;
    std::thread holder([&] {
      LinkStream link(AcceptOne(listener.get()), {});
      EXPECT_TRUE(link.Receive<LinkHolding>().ok());
      EXPECT_TRUE(link.Send(LinkStored{}).ok());
      EXPECT_TRUE(link.Receive<LinkVersion>().ok());
      opened.WaitForNotification();
      const Deadline soon(absl::Milliseconds(500));
      leaves ? copy->Leave() : owner.abort.Abort("a test");
      left.Notify();
      // Nothing comes any more when the owner has gone.
      std::vector<std::byte> piece(1 << 20);
      while (link.ReceiveBytes(piece.data(), 1 << 20, [](const std::byte*, int64_t) {}).ok()) {
      }
      EXPECT_FALSE(soon.passed());
    });
    copy = *owner.Open(address);
    opened.Notify();
    const absl::Status status = Copy(*copy, 1, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    left.WaitForNotification();
    copy.reset();
    holder.join();
  }
}

int64_t EntriesOf(const char* directory) {
  return std::distance(std::filesystem::directory_iterator(directory),
                       std::filesystem::directory_iterator());
}

TEST(RemoteCopy, LeavesNothingBehindEpochAfterEpoch) {
  HoldingHost holder;
  int64_t threads = 0;
  int64_t descriptors = 0;
  for (int64_t epoch = 1; epoch <= 300; ++epoch) {
    const HoldingKey key{"job-1", epoch, 2, 0};
    holder.Expect(key, {0});
    {
      Owner owner(4096, key);
      const std::unique_ptr<RemoteCopy> copy = *owner.Open(holder.address());
      owner.StoreStep(1, 1);
      ASSERT_TRUE(Copy(*copy, 1, 0).ok());
      if (epoch % 2 == 0) holder.store.Seal("job-1", epoch);
    }
    holder.store.Retain("job-1", epoch);
    ASSERT_TRUE(Eventually([&] { return holder.server->links() == 0; }));
    if (epoch == 20) {
      threads = EntriesOf("/proc/self/task");
      descriptors = EntriesOf("/proc/self/fd");
    }
  }
  EXPECT_LE(EntriesOf("/proc/self/task"), threads + 1);
  EXPECT_LE(EntriesOf("/proc/self/fd"), descriptors + 1);
  holder.store.Forget("job-1");
  EXPECT_TRUE(holder.store.empty());
}

}  // namespace
}  // namespace sherd::testing
