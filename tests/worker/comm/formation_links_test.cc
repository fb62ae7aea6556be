#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "formation_fixture.h"
#include "worker/comm/data_link.h"
#include "worker/comm/formation.h"
#include "worker/comm/link_inbox.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

using testing::HasSubstr;

class FormationLinks : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(, FormationLinks, testing::Values(Transport::kShm, Transport::kTcp),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(FormationLinks, AWrongSecretIsRefusedAndBreaksNothing) {
  Group group(3, GetParam());
  std::thread stranger([&] {
    GroupSpec spec = group.Spec(2);
    spec.secret = "s3creT";
    spec.addresses[1] = spec.addresses[0];
    auto listener = *DataListener::Bind();
    const absl::Status status =
        FormCommunicator(*listener, spec, group.options(), nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("wrong secret"));
  });
  while (group.inbox(0).empty()) std::this_thread::yield();
  group.ExpectForms(3);
  stranger.join();
}

// F25: an older epoch changes nothing.
TEST_P(FormationLinks, AStaleEpochIsRefusedBeforeDuringAndAfter) {
  Group group(3, GetParam());
  const auto refused = [&](int epoch) {
    GroupSpec spec = group.Spec(2);
    spec.epoch = epoch;
    auto listener = *DataListener::Bind();
    const absl::Status status =
        FormCommunicator(*listener, spec, group.options(), nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("epoch 5"));
  };
  std::thread before([&] { refused(4); });
  while (group.inbox(0).empty() || group.inbox(1).empty()) std::this_thread::yield();
  group.ExpectForms(3);
  before.join();
  refused(3);
}

TEST_P(FormationLinks, ALaterEpochWaitsForItsFormation) {
  Group group(2, GetParam());
  const auto form = [&](DataListener& listener, int rank, int64_t epoch) {
    GroupSpec spec = group.Spec(rank);
    spec.epoch = epoch;
    auto formed = FormCommunicator(listener, spec, group.options(), nullptr);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_TRUE((*formed)->Wait((*formed)->Barrier()).ok());
  };
  std::thread early([&] { form(group.listener(1), 1, 6); });
  while (group.inbox(0).empty()) std::this_thread::yield();
  // Another process plays rank 1 of the epoch before.
  auto listener = *DataListener::Bind();
  std::thread other([&] { form(*listener, 1, 5); });
  form(group.listener(0), 0, 5);
  other.join();
  form(group.listener(0), 0, 6);
  early.join();
}

// A stranger of the same user can send what it likes.
TEST_P(FormationLinks, GarbageOnTheSocketIsHarmless) {
  Group group(3, GetParam());
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 300; ++i) {
    auto link = ConnectLink(group.address(i % 3));
    ASSERT_TRUE(link.ok());
    switch (i % 6) {
      case 0:  // says nothing
        break;
      case 1: {
        const std::string noise(static_cast<size_t>(i * 40), '\xa5');
        EXPECT_GT(::send(link->get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
        break;
      }
      case 2:
        EXPECT_TRUE(SendLinkMessage(link->get(), LinkGoodbye{.text = "x"}).ok());
        break;
      case 3:  // a segment of its own, unasked
        EXPECT_TRUE(SendLinkMessage(link->get(), LinkSegment{}, link->get()).ok());
        break;
      case 4: {
        LinkHello hello = HelloOf(group.Spec(0), 2, i % 3);
        hello.secret = "guess";
        EXPECT_TRUE(SendLinkMessage(link->get(), hello).ok());
        break;
      }
      case 5:
        link->Close();
        continue;
    }
    strangers.push_back(*std::move(link));
  }
  group.ExpectForms(3);
}

TEST(LinkInbox, AFullInboxDelaysMembersOnly) {
  LinkInbox inbox({.max_parked = 4, .max_wait = absl::Minutes(1)});
  std::vector<FileDescriptor> kept;
  for (int i = 0; i < 10; ++i) {
    std::string address;
    const FileDescriptor listener = *ListenForLinks(&address);
    FileDescriptor link = *ConnectLink(address);
    kept.push_back(*AcceptLink(listener.get()));
    inbox.Add(std::move(link),
              LinkHello{.job_id = "job", .epoch = 1, .group = "g", .secret = "", .from = i});
  }
  const auto taken = inbox.Take({"job", 1, "g", 0});
  ASSERT_EQ(taken.size(), 4u);
  EXPECT_EQ(taken.front().hello.from, 6);
  EXPECT_TRUE(inbox.empty());
  // The owner of a link that had to go sees it end without a word, and connects again.
  EXPECT_EQ(ReceiveLinkMessage(kept.front().get()).input, LinkInput::kClosed);
}

TEST(LinkInbox, LinksThatNobodyClaimsGoAtTheirDeadline) {
  LinkInbox inbox({.max_parked = 4, .max_wait = absl::ZeroDuration()});
  inbox.Add(FileDescriptor(), LinkHello{});
  EXPECT_FALSE(inbox.empty());
  inbox.CloseExpired();
  EXPECT_TRUE(inbox.empty());
}

TEST_P(FormationLinks, ALinkClosedBeforeTheAnswerIsOpenedAgain) {
  Group group(2, GetParam());
  std::thread member([&] {
    auto formed = group.Form(1);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_TRUE((*formed)->Wait((*formed)->Barrier()).ok());
  });
  const LinkInbox::Key key{"job", 5, "data:0", 0};
  for (int closed = 0; closed < 3;) closed += static_cast<int>(group.inbox(0).Take(key).size());
  auto formed = group.Form(0);
  ASSERT_TRUE(formed.ok()) << formed.status();
  EXPECT_TRUE((*formed)->Wait((*formed)->Barrier()).ok());
  member.join();
}

// Rank 1 of three, which cannot be one of the group, beside a rank 0 whose queue is full.
class LateToReach : public testing::TestWithParam<Transport> {
 protected:
  LateToReach() {
    own_.addresses[0] = busy_address_;
    own_.addresses[2] = probed_address_;
    EXPECT_EQ(::listen(busy_.get(), 1), 0);
    while (true) {
      absl::StatusOr<FileDescriptor> link = ConnectLink(busy_address_);
      if (!link.ok() || CheckAttempt(link->get()) == LinkAttempt::kUnderWay) break;
      fillers_.push_back(*std::move(link));
    }
  }

  absl::Status Run(absl::Duration reach) {
    const int segment = GetParam() == Transport::kShm ? Formation::kNoSegment : -1;
    Formation formation(group_.inbox(1), own_, segment, group_.options(), &group_.abort(1));
    return formation.Run(absl::ResourceExhaustedError("no memory"), reach).status();
  }
  // Rank 2 is looked after when rank 0 was found busy.
  void AwaitFirstAttempts() {
    FileDescriptor probe;
    while (!probe.valid()) probe = *AcceptLink(probed_.get());
  }
  // Takes what has come to rank 0; true when a Goodbye was among it.
  bool HearGoodbye() {
    for (FileDescriptor link = *AcceptLink(busy_.get()); link.valid();
         link = *AcceptLink(busy_.get())) {
      taken_.push_back(std::move(link));
    }
    bool heard = false;
    for (const FileDescriptor& link : taken_) {
      const ReceivedLinkMessage said = ReceiveLinkMessage(link.get());
      const auto* goodbye = std::get_if<LinkGoodbye>(&said.message);
      heard = heard || (said.input == LinkInput::kMessage && goodbye != nullptr &&
                        goodbye->text == "no memory");
    }
    return heard;
  }

  Group group_{3, GetParam()};
  std::string busy_address_, probed_address_;
  const FileDescriptor busy_ = *Listen(GetParam(), &busy_address_);
  const FileDescriptor probed_ = *Listen(GetParam(), &probed_address_);
  GroupSpec own_ = group_.Spec(1);
  std::vector<FileDescriptor> fillers_, taken_;
};
INSTANTIATE_TEST_SUITE_P(, LateToReach, testing::Values(Transport::kShm, Transport::kTcp),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(LateToReach, HearsWhyAMemberDoesNotCome) {
  std::atomic<bool> over{false};
  std::thread member([&] {
    EXPECT_EQ(Run(absl::Minutes(1)), absl::ResourceExhaustedError("no memory"));
    over = true;
  });
  AwaitFirstAttempts();
  bool heard = false;
  while (!over) heard = HearGoodbye() || heard;
  member.join();
  // The Hello may have come alone.
  for (int look = 0; look < 2; ++look) heard = HearGoodbye() || heard;
  EXPECT_TRUE(heard);
}
TEST_P(LateToReach, HoldsNobodyUp) {
  EXPECT_EQ(Run(absl::Milliseconds(50)), absl::ResourceExhaustedError("no memory"));
}
TEST_P(LateToReach, IsNotWaitedForAfterAnAbort) {
  std::thread member(
      [&] { EXPECT_EQ(Run(absl::InfiniteDuration()).code(), absl::StatusCode::kAborted); });
  AwaitFirstAttempts();
  group_.abort(1).Abort("enough");
  member.join();
}

TEST_P(FormationLinks, AnImpostorAtAMembersAddressGetsNoSegment) {
  Group group(2, GetParam());
  std::string address;
  const FileDescriptor impostor = *Listen(GetParam(), &address);
  GroupSpec spec = group.Spec(1);
  spec.addresses[0] = address;
  std::thread member(
      [&] { EXPECT_EQ(group.Form(spec).status().code(), absl::StatusCode::kPermissionDenied); });
  FileDescriptor link;
  while (!link.valid()) link = *AcceptLink(impostor.get());
  EXPECT_EQ(AwaitMessage(link.get()).input, LinkInput::kMessage);  // its Hello
  EXPECT_TRUE(SendLinkMessage(link.get(), LinkSegment{.secret = "?"}, link.get()).ok());
  const ReceivedLinkMessage answer = AwaitMessage(link.get());
  EXPECT_TRUE(std::holds_alternative<LinkGoodbye>(answer.message));
  EXPECT_FALSE(answer.attached.valid());
  member.join();
}

TEST(ShmFormation, ASegmentThatMayShrinkIsRefused) {
  Group group(2, Transport::kShm);
  std::thread member([&] {
    const absl::Status status = group.Form(0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1's segment"));
  });
  const FileDescriptor link = *ConnectLink(group.address(0));
  ASSERT_TRUE(SendLinkMessage(link.get(), HelloOf(group.Spec(1), 1, 0)).ok());
  EXPECT_TRUE(std::holds_alternative<LinkSegment>(AwaitMessage(link.get()).message));
  const FileDescriptor event(::eventfd(0, EFD_CLOEXEC));
  EXPECT_TRUE(SendLinkMessage(link.get(), LinkSegment{.secret = "s3cret"}, event.get()).ok());
  member.join();
}

// F59: members that were told different things.
}  // namespace
}  // namespace sherd
