// A process that has no file descriptors left ends its part in a group with a status, which the
// other members are told.
#include "tests/support/few_descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "formation_fixture.h"
#include "worker/comm/shm_communicator.h"
#include "worker/comm/tcp_communicator.h"

namespace sherd {
namespace {

using testing::HasSubstr;

// Two members whose links are there, and what makes a communicator of each.
class LinkedPair {
 public:
  explicit LinkedPair(Transport transport) : group_(2, transport), transport_(transport) {
    RunRanks(2, [&](int rank) {
      FileDescriptor pages;
      if (transport == Transport::kShm) own(rank) = *SharedSegment::Create(4096, &pages);
      const int segment = pages.valid() ? pages.get() : -1;
      const GroupSpec spec = group_.Spec(rank);
      Formation formation(group_.inbox(rank), spec, segment, group_.options(), /*abort=*/nullptr);
      auto formed = formation.Run();
      ASSERT_TRUE(formed.ok()) << formed.status();
      members_[static_cast<size_t>(rank)] = *std::move(formed);
    });
    for (int rank : {0, 1}) memory_[static_cast<size_t>(rank)] = *TcpMemory::Create(4096, 1);
  }

  std::unique_ptr<Communicator> Make(int rank) {
    const auto at = static_cast<size_t>(rank);
    if (transport_ == Transport::kTcp) {
      return std::make_unique<TcpCommunicator>(rank, std::move(members_[at]),
                                               std::move(memory_[at]), absl::Seconds(60));
    }
    members_[at][at].segment = std::move(own(rank));
    return std::make_unique<ShmCommunicator>(rank, std::move(members_[at]), absl::Seconds(60));
  }

 private:
  SharedSegment& own(int rank) { return own_[static_cast<size_t>(rank)]; }

  Group group_;
  const Transport transport_;
  SharedSegment own_[2];
  TcpMemory memory_[2];
  std::vector<Member> members_[2];
};

class FewDescriptorsTest : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(, FewDescriptorsTest, testing::Values(Transport::kShm, Transport::kTcp),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(FewDescriptorsTest, EndACommunicatorOnAllMembers) {
  LinkedPair pair(GetParam());
  std::unique_ptr<Communicator> without;
  {
    const FewDescriptors none(0);
    without = pair.Make(0);
  }
  const std::unique_ptr<Communicator> other = pair.Make(1);
  EXPECT_EQ(without->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(without->Wait(without->Barrier()), without->status());
  EXPECT_EQ(without->ended_by(), -1);
  const absl::Status told = other->Wait(other->Barrier());
  EXPECT_EQ(told.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(told.message(), HasSubstr("rank 0 has no descriptor to hear the other ranks by"));
  EXPECT_EQ(other->ended_by(), 0);
}

TEST(FewDescriptors, EndAFormation) {
  Group group(1, Transport::kTcp);
  // For the arena, and then for links that come; none is left for the communicator.
  const FewDescriptors one(1);
  const auto formed = group.Form(0);
  EXPECT_EQ(formed.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(formed.status().message(), HasSubstr("no descriptor to wait for the other ranks by"));
}

// Others may give some back; in the end nobody else is to blame.
TEST_P(FewDescriptorsTest, FormNoGroupAndBlameNobodyWhoWasNotReached) {
  Group group(2, GetParam());
  FormOptions options = group.options();
  options.form_timeout = absl::Milliseconds(50);
  const GroupSpec spec = group.Spec(1);
  Formation formation(group.inbox(1), spec, /*own_segment=*/-1, options, &group.abort(1));
  // For arrivals; none is left for links.
  const FewDescriptors one(1);
  const absl::Status formed = formation.Run().status();
  EXPECT_EQ(formed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(formed.message(),
            "rank 1 cannot link to the other ranks of data:0: socket: Too many open files");
  EXPECT_EQ(LostMemberOf(formed), -1);
}

// Nothing would end its waits.
TEST_P(FewDescriptorsTest, BeginNoFormationThatCannotBeAborted) {
  Group group(2, GetParam());
  std::unique_ptr<FormationAbort> deaf;
  {
    const FewDescriptors none(0);
    deaf = std::make_unique<FormationAbort>();
  }
  RunRanks(2, [&](int rank) {
    const auto formed = FormCommunicator(group.listener(rank), group.Spec(rank), group.options(),
                                         rank == 0 ? deaf.get() : &group.abort(rank));
    EXPECT_EQ(formed.status().code(), absl::StatusCode::kResourceExhausted) << rank;
    EXPECT_EQ(formed.status().message(), "rank 0 has no descriptor to form data:0");
    EXPECT_EQ(LostMemberOf(formed.status()), rank == 0 ? -1 : 0);
  });
  deaf->Abort("a reason");
  EXPECT_TRUE(deaf->aborted());
  EXPECT_EQ(deaf->reason(), "a reason");
}

}  // namespace
}  // namespace sherd
