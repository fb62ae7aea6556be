// What comes over a link about a stored shard and cannot be ends that link, and nothing else.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <xxhash.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/holdings/holding_host.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/remote_copy.h"
#include "worker/holdings/version_stream.h"

namespace sherd::testing {
namespace {

constexpr int64_t kSlotBytes = 10'000;
constexpr int kOwners = 400;
constexpr absl::Duration kLong = absl::Seconds(20);

class Strangers : public ::testing::Test {
 protected:
  // A link on which the shard of a rank is stored; each of another rank.
  LinkStream Owner() {
    LinkStream link = ConnectTo(holder_.address());
    EXPECT_TRUE(
        link.Send(WishFor(LinkHolding::Wish::kStore, Key(++owner_), kSlotBytes, kSecret)).ok());
    const auto answer = link.Receive<LinkStored>(kLong);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return link;
  }
  HoldingKey Key(int owner) const { return {"job-1", 1, kOwners, owner}; }
  HoldingSegment& segment() { return *holder_.store.Find(Key(owner_)); }

  absl::Status SendVersion(LinkStream& link, const LinkVersion& version) {
    const absl::Status sent = link.Send(version);
    return sent.ok() ? link.SendBytes(bytes_.data(), kSlotBytes) : sent;
  }
  LinkVersion Version(int slot, int64_t step) const {
    return {.slot = slot, .step = step, .checksum = XXH3_64bits(bytes_.data(), kSlotBytes)};
  }
  // Why the holder ends the link.
  absl::StatusCode End(LinkStream& link) {
    absl::StatusOr<LinkStored> said = link.Receive<LinkStored>(kLong);
    while (said.ok()) said = link.Receive<LinkStored>(kLong);
    return said.status().code();
  }

  HoldingHost holder_;
  int owner_ = 0;
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(kSlotBytes, std::byte{5});

  void SetUp() override {
    std::vector<int> owners;
    for (int owner = 0; owner < kOwners; ++owner) owners.push_back(owner);
    holder_.Expect(Key(0), owners);
  }
  // Whatever a test has done, others are served.
  void TearDown() override {
    LinkStream link = Owner();
    ASSERT_TRUE(SendVersion(link, Version(1, 1)).ok());
    const auto stored = link.Receive<LinkStored>(kLong);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->step, 1);
    EXPECT_EQ(segment().FindStep(1), 1);
  }
};

TEST_F(Strangers, VersionsOutOfTurnEndTheLink) {
  for (const LinkVersion& version :
       {Version(2, 5), Version(-1, 5), Version(1, 0), Version(1, -7), Version(INT32_MAX, 5)}) {
    LinkStream link = Owner();
    ASSERT_TRUE(link.Send(version).ok());
    EXPECT_EQ(End(link), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(segment().Held(0).has_value() || segment().Held(1).has_value());
  }
  for (const LinkVersion& next : {Version(1, 6), Version(0, 5), Version(0, 4)}) {
    LinkStream link = Owner();
    ASSERT_TRUE(SendVersion(link, Version(1, 5)).ok());
    ASSERT_TRUE(link.Receive<LinkStored>(kLong).ok());
    ASSERT_TRUE(link.Send(next).ok());
    EXPECT_EQ(End(link), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(segment().FindStep(5), 1);
  }
}

TEST_F(Strangers, ReportsThatAreNoneOfTheVersionsEndTheLink) {
  for (const int32_t reports : {-1, HoldingSegment::kReports + 1, INT32_MAX}) {
    LinkStream link = Owner();
    LinkVersion version = Version(1, 5);
    version.reports = reports;
    ASSERT_TRUE(link.Send(version).ok());
    EXPECT_EQ(End(link), absl::StatusCode::kInvalidArgument) << reports;
  }
  for (const std::vector<LinkReport>& reports : std::vector<std::vector<LinkReport>>{
           {}, {{.step = 6}}, {{.step = 0}}, {{.step = -3}}, {{.step = 4}, {.step = 5}}}) {
    LinkStream link = Owner();
    LinkVersion version = Version(1, 5);
    version.reports = 1;
    ASSERT_TRUE(link.Send(version).ok());
    ASSERT_TRUE(link.Send(LinkReports{reports}).ok());
    EXPECT_EQ(End(link), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(segment().Reports(0, 5).empty());
  }
}

// F46: the slot before stays whole.
TEST_F(Strangers, BytesThatChangedOnTheWayAreNotStored) {
  LinkStream link = Owner();
  ASSERT_TRUE(SendVersion(link, Version(1, 5)).ok());
  ASSERT_TRUE(link.Receive<LinkStored>(kLong).ok());
  LinkVersion version = Version(0, 6);
  version.checksum ^= 1;
  ASSERT_TRUE(SendVersion(link, version).ok());
  EXPECT_EQ(End(link), absl::StatusCode::kDataLoss);
  EXPECT_EQ(segment().FindStep(5), 1);
  EXPECT_FALSE(segment().Held(0).has_value());
}

// F22: an owner that dies in the middle of a version.
TEST_F(Strangers, HalfAVersionIsNotStored) {
  {
    LinkStream link = Owner();
    ASSERT_TRUE(SendVersion(link, Version(1, 5)).ok());
    ASSERT_TRUE(link.Receive<LinkStored>(kLong).ok());
    ASSERT_TRUE(link.Send(Version(0, 6)).ok());
    ASSERT_TRUE(link.SendBytes(bytes_.data(), kSlotBytes / 2).ok());
  }
  EXPECT_TRUE(Eventually([&] { return holder_.server->links() == 0; }));
  EXPECT_EQ(segment().FindStep(5), 1);
  EXPECT_FALSE(segment().Held(0).has_value());
}

TEST_F(Strangers, OtherMessagesEndTheLink) {
  for (const LinkMessage& other : std::vector<LinkMessage>{LinkHello{}, LinkHolding{}, LinkStored{},
                                                           LinkRanges{}, LinkSegment{}}) {
    LinkStream link = Owner();
    ASSERT_TRUE(link.Send(other).ok());
    EXPECT_EQ(End(link), absl::StatusCode::kUnavailable);
  }
}

TEST_F(Strangers, GarbageEndsTheLink) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    LinkStream link = Owner();
    std::vector<std::byte> garbage(1 + random() % 200);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    // A length that is none, now and then one that is too much.
    garbage[0] = static_cast<std::byte>(random() % 64);
    for (size_t at = 1; at < std::min<size_t>(4, garbage.size()); ++at) garbage[at] = std::byte{0};
    ASSERT_TRUE(link.SendBytes(garbage.data(), static_cast<int64_t>(garbage.size())).ok());
  }
  EXPECT_TRUE(Eventually([&] { return holder_.server->links() == 0; }));
}

TEST_F(Strangers, WishesOfTheOtherKindOfLinkAreRefused) {
  for (const auto wish : {LinkHolding::Wish::kKeep, LinkHolding::Wish::kGive}) {
    LinkStream link = ConnectTo(holder_.address());
    ASSERT_TRUE(link.Send(WishFor(wish, Key(50), kSlotBytes, kSecret)).ok());
    EXPECT_EQ(End(link), absl::StatusCode::kInvalidArgument);
  }
  for (const auto wish : {LinkHolding::Wish::kStore, LinkHolding::Wish::kRead}) {
    const FileDescriptor link = *ConnectLink(holder_.listener->address());
    ASSERT_TRUE(SendLinkMessage(link.get(), WishFor(wish, Key(50), kSlotBytes, kSecret)).ok());
    ReceivedLinkMessage received;
    ASSERT_TRUE(Eventually([&] {
      received = ReceiveLinkMessage(link.get());
      return received.input != LinkInput::kNothing;
    }));
    ASSERT_EQ(received.input, LinkInput::kMessage);
    EXPECT_EQ(std::get<LinkGoodbye>(received.message).code, absl::StatusCode::kInvalidArgument);
  }
}

// Who is let in keeps its link; those that are too many come again later.
TEST_F(Strangers, NoMoreLinksAreServedThanMayBe) {
  std::vector<LinkStream> links;
  for (size_t link = 0; link < LinkThreads::kMost; ++link) links.push_back(Owner());
  LinkStream late = ConnectTo(holder_.address());
  const LinkHolding wish = WishFor(LinkHolding::Wish::kStore, Key(399), kSlotBytes, kSecret);
  ASSERT_TRUE(late.Send(wish).ok());
  EXPECT_EQ(late.Receive<LinkStored>(kLong).status().code(), absl::StatusCode::kResourceExhausted);
  links.clear();
  EXPECT_TRUE(Eventually([&] { return holder_.server->links() == 0; }));
}

// A peer that begins a message and stops is not waited for longer than one may take.
TEST(LinkStream, APeerThatStallsIsGivenUp) {
  std::string address;
  const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
  LinkStream peer = ConnectTo(address);
  LinkStream link(AcceptOne(listener.get()), {});
  const std::byte half[] = {std::byte{40}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
  ASSERT_TRUE(peer.SendBytes(half, sizeof(half)).ok());
  EXPECT_EQ(link.Receive<LinkStored>(absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace sherd::testing
