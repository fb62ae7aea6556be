// In which order an epoch's groups launch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "nccl_ranks.h"
#include "tests/worker/comm/communicator_kinds.h"

namespace sherd {
namespace {

using testing::ElementsAre;

Ticket Gather(Communicator& comm) {
  return comm.AllGather(comm.arena(), comm.arena() + 4096, 1024);
}

// Without what a communicator's name says of its epoch.
std::vector<std::string> GroupsOf(const std::vector<std::string>& launches) {
  std::vector<std::string> groups;
  for (const std::string& name : launches) groups.push_back(name.substr(0, name.find(' ')));
  return groups;
}

// F8: an operation that all have come for first is not launched before one that was called earlier.
TEST(NcclOrder, GroupsLaunchInTheOrderOfTheCalls) {
  NcclRanks ranks(2);
  auto data = ranks.MustForm("data:0");
  auto tensor = ranks.MustForm("tensor:0");
  RunRanks(2, [&](int rank) {
    const size_t place = static_cast<size_t>(rank);
    // No rank of a job does as rank 1 does here: it has rank 0 wait for the first of its own.
    std::vector<Communicator*> groups = {data[place].get(), tensor[place].get()};
    if (rank == 1) std::swap(groups[0], groups[1]);
    const Ticket first = Gather(*groups[0]);
    if (rank == 1) absl::SleepFor(absl::Milliseconds(100));
    const Ticket second = Gather(*groups[1]);
    EXPECT_TRUE(groups[0]->Wait(first).ok());
    EXPECT_TRUE(groups[1]->Wait(second).ok());
  });
  EXPECT_THAT(GroupsOf(ranks.nccl().launches(0)), ElementsAre("data:0", "tensor:0"));
  EXPECT_THAT(GroupsOf(ranks.nccl().launches(1)), ElementsAre("tensor:0", "data:0"));
}

TEST(NcclOrder, AllRanksLaunchAlike) {
  constexpr int kRounds = 100;
  NcclRanks ranks(3);
  ranks.nccl().Inject({.call = NcclCall::kGroupEnd,
                       .what = NcclFault::kDelay,
                       .polls = 3,
                       .skip = 10,
                       .times = 50});
  auto data = ranks.MustForm("data:0");
  auto tensor = ranks.MustForm("tensor:0");
  RunRanks(3, [&](int rank) {
    const size_t place = static_cast<size_t>(rank);
    std::vector<Ticket> tickets;
    for (int round = 0; round < kRounds; ++round) {
      Communicator& comm = round % 3 == 0 ? *data[place] : *tensor[place];
      tickets.push_back(Gather(comm));
    }
    for (int round = 0; round < kRounds; ++round) {
      Communicator& comm = round % 3 == 0 ? *data[place] : *tensor[place];
      EXPECT_TRUE(comm.Wait(tickets[static_cast<size_t>(round)]).ok());
    }
  });
  std::vector<std::string> called;
  for (int round = 0; round < kRounds; ++round) {
    called.push_back(round % 3 == 0 ? "data:0" : "tensor:0");
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(GroupsOf(ranks.nccl().launches(rank)), called) << rank;
  }
}

// Who waits for the turn of another group's operation is freed with it.
TEST(NcclOrder, AnOperationThatNobodyComesForEndsThoseBehindIt) {
  NcclRanks ranks(2);
  ranks.form().operation_timeout = absl::Milliseconds(200);
  auto data = ranks.MustForm("data:0");
  auto tensor = ranks.MustForm("tensor:0");
  Gather(*data[0]);
  const Ticket behind = Gather(*tensor[0]);
  Gather(*tensor[1]);
  const absl::Status status = tensor[0]->Wait(behind);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("did not"));
}

}  // namespace
}  // namespace sherd
