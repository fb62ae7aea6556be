#include "worker/holdings/holding_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSlotBytes = 4096;
const HoldingKey kKey{"job-1", 1, 2, 0};
constexpr char kSecret[] = "secret of the epoch";

struct Process {
  std::unique_ptr<DataListener> listener = *DataListener::Bind();
  HoldingStore store;
  std::unique_ptr<HoldingServer> server = *HoldingServer::Start(*listener, store);
};

TEST(HoldingLinks, AHolderKeepsASegmentAndGivesItToWhoAsks) {
  auto owner = std::make_unique<Process>();
  Process holder;
  std::shared_ptr<HoldingSegment> segment = *owner->store.Make(kKey, kSlotBytes, kSecret);
  ASSERT_TRUE(HandOver(holder.listener->address(), *segment, kSecret, nullptr).ok());
  segment->slot(1)[17] = std::byte{9};
  segment->Complete(1, 4, segment->Checksum(1));
  // The owner dies.
  segment.reset();
  owner.reset();
  const auto obtained = Obtain(holder.listener->address(), kKey, kSlotBytes, nullptr);
  ASSERT_TRUE(obtained.ok()) << obtained.status();
  EXPECT_EQ((*obtained)->FindStep(4), 1);
  EXPECT_EQ((*obtained)->slot(1)[17], std::byte{9});
}

TEST(HoldingLinks, RefusalsSayWhy) {
  Process owner;
  Process holder;
  const std::shared_ptr<HoldingSegment> segment = *owner.store.Make(kKey, kSlotBytes, kSecret);
  holder.store.Seal("job-1", 1);
  const absl::Status sealed = HandOver(holder.listener->address(), *segment, kSecret, nullptr);
  EXPECT_EQ(sealed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(sealed.message()), HasSubstr("epoch 1 of job job-1 has ended here"));
  EXPECT_EQ(Obtain(holder.listener->address(), kKey, kSlotBytes, nullptr).status().code(),
            absl::StatusCode::kNotFound);
  // Of another size than it is.
  EXPECT_EQ(Obtain(owner.listener->address(), kKey, kSlotBytes * 2, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HandOver("tcp:127.0.0.1:1", *segment, kSecret, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

// F22: nobody waits for a process that is gone, or that does not answer once the epoch is aborted.
TEST(HoldingLinks, EndWithTheOtherProcessOrWithTheEpoch) {
  Process owner;
  const std::shared_ptr<HoldingSegment> segment = *owner.store.Make(kKey, kSlotBytes, kSecret);
  std::string gone;
  {
    const Process dead;
    gone = dead.listener->address();
  }
  EXPECT_EQ(HandOver(gone, *segment, kSecret, nullptr).code(), absl::StatusCode::kUnavailable);
  // Its kernel accepts, and nobody reads.
  std::string mute;
  const FileDescriptor listener = *ListenForLinks(&mute);
  FormationAbort abort;
  std::thread aborts([&] { abort.Abort("a test"); });
  EXPECT_EQ(HandOver(mute, *segment, kSecret, &abort).code(), absl::StatusCode::kAborted);
  aborts.join();
}

// A process that serves no shards closes such links; a stranger's words do it no harm.
TEST(HoldingLinks, WithoutAServerNothingIsKept) {
  Process owner;
  const std::shared_ptr<HoldingSegment> segment = *owner.store.Make(kKey, kSlotBytes, kSecret);
  const std::unique_ptr<DataListener> listener = *DataListener::Bind();
  EXPECT_EQ(HandOver(listener->address(), *segment, kSecret, nullptr).code(),
            absl::StatusCode::kUnavailable);
  Process holder;
  LinkHolding empty;
  const FileDescriptor link = *ConnectLink(holder.listener->address());
  ASSERT_TRUE(SendLinkMessage(link.get(), empty).ok());
  EXPECT_TRUE(HandOver(holder.listener->address(), *segment, kSecret, nullptr).ok());
}

}  // namespace
}  // namespace sherd
