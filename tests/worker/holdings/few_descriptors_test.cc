// A process that has no file descriptors left stores and is stored for later, or says why not.
#include "tests/support/few_descriptors.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/worker/holdings/holding_host.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/lost_holder.h"
#include "worker/holdings/remote_copy.h"
#include "worker/holdings/remote_version.h"

namespace sherd::testing {
namespace {

const HoldingKey kKey{"job-1", 1, 2, 0};

TEST(FewDescriptors, StartNoServerOfShards) {
  const std::unique_ptr<DataListener> listener = *DataListener::Bind();
  HoldingStore store;
  const FewDescriptors none(0);
  const absl::Status started = HoldingServer::Start(*listener, store).status();
  EXPECT_EQ(started.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(started.message(), "the process has no descriptor left");
}

TEST(FewDescriptors, LetAnOwnerInLater) {
  HoldingHost holder;
  {
    const FewDescriptors none(0);
    holder.Expect(kKey, {0});
    EXPECT_EQ(holder.store.Admit(kKey, kSecret).status().code(),
              absl::StatusCode::kResourceExhausted);
    // What it says otherwise it says also now.
    EXPECT_EQ(holder.store.Admit(kKey, "another").status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  const auto over = holder.store.Admit(kKey, kSecret);
  ASSERT_TRUE(over.ok()) << over.status();
  holder.store.Seal(kKey.job_id, kKey.epoch);
  EXPECT_TRUE((*over)->is_set());
}

// Nobody else is to blame.
TEST(FewDescriptors, HaveNoShardStoredElsewhere) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  const std::shared_ptr<HoldingSegment> segment = *HoldingSegment::Create(kKey, 4096);
  const FormationAbort abort;
  const FewDescriptors none(0);
  const absl::Status opened = RemoteCopy::Open(holder.address(), *segment, kSecret, abort).status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(opened.message(),
            "this rank's process has no descriptor left to have its shard stored by, at " +
                holder.address());
  EXPECT_EQ(LostHolderOf(opened), "");
}

TEST(FewDescriptors, BlameNoHolderForASocketThatCannotBeOpened) {
  HoldingHost holder;
  holder.Expect(kKey, {0});
  const std::shared_ptr<HoldingSegment> segment = *HoldingSegment::Create(kKey, 4096);
  const FormationAbort abort;
  // To be ended by; none is left for the link.
  const FewDescriptors one(1);
  const absl::Status opened = RemoteCopy::Open(holder.address(), *segment, kSecret, abort).status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(opened.message(), "this rank's process cannot have its shard stored by the one at " +
                                  holder.address() + ": socket: Too many open files");
  EXPECT_EQ(LostHolderOf(opened), "");
}

TEST(FewDescriptors, KeepNoShardWithinTheDomain) {
  HoldingHost holder;
  const std::shared_ptr<HoldingSegment> segment = *HoldingSegment::Create(kKey, 4096);
  const std::string address = holder.listener->address();
  const FewDescriptors none(0);
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(IsOwnLack(HandOver(address, *segment, kSecret, nullptr)));
  EXPECT_TRUE(IsOwnLack(Obtain(address, kKey, 4096, nullptr).status()));
  // Nobody was asked again.
  EXPECT_LT(absl::Now() - begin, kHoldingAnswerTime);
}

TEST(FewDescriptors, ReadNoVersion) {
  HoldingHost holder;
  const FormationAbort abort;
  const FewDescriptors none(0);
  const absl::Status opened =
      RemoteVersion::Open(holder.address(), kKey, 4096, 1, kSecret, abort).status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOwnLack(opened));
}

}  // namespace
}  // namespace sherd::testing
