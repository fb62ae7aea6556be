// A version, read out of the memory of a process on another host.
#include "worker/holdings/remote_version.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/holdings/holding_host.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/version_stream.h"

namespace sherd::testing {
namespace {

constexpr int64_t kSlotBytes = 1'000'000;
const HoldingKey kKey{"job-1", 1, 2, 0};

class RemoteVersions : public ::testing::Test {
 protected:
  RemoteVersions() {
    for (int64_t at = 0; at < kSlotBytes; ++at) {
      segment_->slot(1)[at] = static_cast<std::byte>(at * 7 % 251);
    }
    for (int64_t step = 1; step <= 300; ++step) {
      v1::StepReport report;
      report.set_step(step);
      report.set_tokens(step);
      segment_->Report(report);
    }
    segment_->Complete(1, 300, segment_->Checksum(1), {4, 0.25});
  }
  absl::StatusOr<std::unique_ptr<RemoteVersion>> Open(int64_t step = 300,
                                                      const std::string& secret = kSecret,
                                                      int64_t slot_bytes = kSlotBytes) {
    return RemoteVersion::Open(holder_.address(), kKey, slot_bytes, step, secret, abort_);
  }

  HoldingHost holder_;
  FormationAbort abort_;
  const std::shared_ptr<HoldingSegment> segment_ = *holder_.store.Make(kKey, kSlotBytes, kSecret);
};

// More ranges than fit into one question.
TEST_F(RemoteVersions, GiveTheBytesThatAreAskedFor) {
  const auto version = Open();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ((*version)->figures().skipped_windows, 4);
  EXPECT_EQ((*version)->figures().loss, 0.25);
  ASSERT_EQ((*version)->reports().size(), 300u);
  EXPECT_EQ((*version)->reports()[299].tokens(), 300);
  std::vector<std::byte> read(kSlotBytes);
  std::vector<VersionRange> ranges;
  for (int64_t begin = 0; begin < kSlotBytes; begin += 1000) {
    ranges.push_back({begin, begin == 5000 ? 0 : 1000, read.data() + begin});
  }
  ASSERT_TRUE((*version)->Read(ranges).ok());
  ASSERT_TRUE((*version)->Read({{5000, 1000, read.data() + 5000}}).ok());
  EXPECT_EQ(std::memcmp(read.data(), segment_->slot(1), kSlotBytes), 0);
}

TEST_F(RemoteVersions, TellHowMuchOfThemIsRead) {
  const auto version = Open();
  ASSERT_TRUE(version.ok()) << version.status();
  std::vector<std::byte> read(kSlotBytes);
  int64_t told = 0;
  const auto watch = [&](int64_t bytes) {
    told += bytes;
    return told > 700'000 ? absl::AbortedError("enough") : absl::OkStatus();
  };
  EXPECT_TRUE((*version)->Read({{0, 500'000, read.data()}}, watch).ok());
  EXPECT_EQ(told, 500'000);
  EXPECT_EQ((*version)->Read({{0, 500'000, read.data()}}, watch).code(),
            absl::StatusCode::kAborted);
}

TEST_F(RemoteVersions, AreReadAlsoAfterTheEpochHasEnded) {
  holder_.store.Seal("job-1", 1);
  EXPECT_TRUE(Open().ok());
}

// F46
TEST_F(RemoteVersions, AreRefusedToStrangersAndWhereTheyAreNot) {
  EXPECT_EQ(Open(300, "another").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Open(300, "").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Open(299).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open(300, kSecret, kSlotBytes + 1).status().code(), absl::StatusCode::kInvalidArgument);
  const auto of_other_rank =
      RemoteVersion::Open(holder_.address(), {"job-1", 1, 2, 1}, kSlotBytes, 300, kSecret, abort_);
  EXPECT_EQ(of_other_rank.status().code(), absl::StatusCode::kNotFound);
  const auto version = Open();
  ASSERT_TRUE(version.ok());
  std::byte to[8];
  for (const VersionRange& outside : std::vector<VersionRange>{
           {kSlotBytes - 4, 8, to}, {-1, 8, to}, {INT64_MAX, 8, to}, {kSlotBytes + 8, 8, to}}) {
    const auto one = Open();
    ASSERT_TRUE(one.ok());
    EXPECT_FALSE((*one)->Read({outside}).ok());
  }
  EXPECT_TRUE((*version)->Read({{0, 8, to}}).ok());
}

// A segment whose secret is not known is open to nobody.
TEST_F(RemoteVersions, WithoutASecretAreRefusedToAll) {
  const HoldingKey key{"job-2", 1, 2, 0};
  const std::shared_ptr<HoldingSegment> segment = *holder_.store.Make(key, kSlotBytes, "");
  segment->Complete(0, 1, segment->Checksum(0));
  EXPECT_EQ(RemoteVersion::Open(holder_.address(), key, kSlotBytes, 1, "", abort_).status().code(),
            absl::StatusCode::kPermissionDenied);
}

// F46: what has changed since it was stored is not given, nor told of any more.
TEST_F(RemoteVersions, AreLookedAtFirst) {
  segment_->slot(1)[kSlotBytes - 1] ^= std::byte{1};
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(segment_->FindStep(300), -1);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
}

// A slot that its owner writes again meanwhile.
TEST_F(RemoteVersions, AreNotTakenForAnotherStep) {
  const auto version = Open();
  ASSERT_TRUE(version.ok());
  segment_->Invalidate(1);
  std::byte to[8];
  EXPECT_EQ((*version)->Read({{0, 8, to}}).code(), absl::StatusCode::kDataLoss);
}

// F46: what changes on the way.
TEST_F(RemoteVersions, AreCheckedRangeByRange) {
  std::string address;
  const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
  std::thread holder([&] {
    LinkStream link(AcceptOne(listener.get()), {});
    EXPECT_TRUE(link.Receive<LinkHolding>().ok());
    EXPECT_TRUE(link.Send(LinkVersion{.step = 300}).ok());
    EXPECT_TRUE(link.Receive<LinkRanges>().ok());
    const std::vector<std::byte> wrong(16);
    EXPECT_TRUE(link.SendBytes(wrong.data(), 16).ok());
  });
  const auto version = RemoteVersion::Open(address, kKey, kSlotBytes, 300, kSecret, abort_);
  ASSERT_TRUE(version.ok()) << version.status();
  std::byte to[8];
  EXPECT_EQ((*version)->Read({{0, 8, to}}).code(), absl::StatusCode::kDataLoss);
  holder.join();
}

// F22
TEST_F(RemoteVersions, EndWithTheHolderOrWithTheEpoch) {
  std::string address;
  {
    const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
    std::thread holder([&] {
      LinkStream link(AcceptOne(listener.get()), {});
      EXPECT_TRUE(link.Receive<LinkHolding>().ok());
    });
    EXPECT_EQ(RemoteVersion::Open(address, kKey, kSlotBytes, 300, kSecret, abort_).status().code(),
              absl::StatusCode::kUnavailable);
    holder.join();
  }
  EXPECT_EQ(RemoteVersion::Open(address, kKey, kSlotBytes, 300, kSecret, abort_).status().code(),
            absl::StatusCode::kUnavailable);
  // Its kernel accepts, and nobody answers.
  const FileDescriptor mute = *ListenForTcpLinks("127.0.0.1", &address);
  std::thread aborts([&] { abort_.Abort("a test"); });
  EXPECT_EQ(RemoteVersion::Open(address, kKey, kSlotBytes, 300, kSecret, abort_).status().code(),
            absl::StatusCode::kAborted);
  aborts.join();
}

}  // namespace
}  // namespace sherd::testing
