#include "worker/comm/formation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "formation_fixture.h"
#include "worker/comm/data_link.h"
#include "worker/comm/link_inbox.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Formation : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(, Formation, testing::Values(Transport::kShm, Transport::kTcp),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(Formation, AnyMemberMayComeFirst) {
  for (int first = 0; first < 3; ++first) {
    Group group(3, GetParam());
    const auto form = [&](int rank) {
      auto formed = group.Form(rank);
      ASSERT_TRUE(formed.ok()) << formed.status();
      EXPECT_TRUE((*formed)->Wait((*formed)->Barrier()).ok());
    };
    std::thread early([&] { form(first); });
    // The early member is at work when its links have come to those that are not.
    for (int rank = 0; rank < first; ++rank) {
      while (group.inbox(rank).empty()) std::this_thread::yield();
    }
    RunRanks(3, [&](int rank) {
      if (rank != first) form(rank);
    });
    early.join();
  }
}

TEST_P(Formation, SeveralGroupsOfOneJobFormSideBySide) {
  Group group(4, GetParam());
  RunRanks(4, [&](int rank) {
    std::vector<std::thread> threads;
    for (const char* name : {"data:0", "tensor:0", "data:1"}) {
      threads.emplace_back([&, name] {
        GroupSpec spec = group.Spec(rank);
        spec.group = name;
        auto formed = group.Form(spec);
        ASSERT_TRUE(formed.ok()) << formed.status();
        EXPECT_TRUE((*formed)->Wait((*formed)->Barrier()).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// F33, F34
TEST_P(Formation, AMissingMemberIsNamedAtTheDeadline) {
  Group group(4, GetParam());
  group.options().form_timeout = absl::Milliseconds(150);
  RunRanks(4, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    const absl::Status status = group.Form(rank).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.message(),
              "ranks 1, 3 of data:0 did not come to form epoch 5 of job job within 150ms");
    EXPECT_EQ(LostMemberOf(status), 1);
  });
}

// F21: also before any link exists.
TEST_P(Formation, AMemberWhoseProcessIsGoneIsNamedAtOnce) {
  for (const int gone : {0, 1, 2}) {
    Group group(3, GetParam());
    group.CloseListener(gone);
    const absl::Time start = absl::Now();
    RunRanks(3, [&](int rank) {
      if (rank == gone) return;
      const absl::Status status = group.Form(rank).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("rank " + std::to_string(gone)), HasSubstr("went away")));
      // Also where another member has passed it on.
      EXPECT_EQ(LostMemberOf(status), gone);
    });
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
  }
}

TEST_P(Formation, MembersMustAgreeOnTheSize) {
  Group group(3, GetParam());
  RunRanks(3, [&](int rank) {
    if (rank == 2) return;
    GroupSpec spec = group.Spec(rank);
    if (rank == 1) spec.addresses.pop_back();
    const absl::Status status = group.Form(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1 sees 2 members in data:0 where rank 0 sees 3"));
  });
}

// F29
TEST_P(Formation, AbortEndsItForEveryMember) {
  Group group(4, GetParam());
  std::atomic<int> ended{0};
  std::atomic<int64_t> aborted{0};
  RunRanks(4, [&](int rank) {
    if (rank == 0) {
      // Does not come, so the others wait; rank 1 is at work once its link is here.
      std::vector<LinkInbox::Arrival> arrivals;
      const auto from_rank_1 = [](const auto& arrival) { return arrival.hello.from == 1; };
      while (std::none_of(arrivals.begin(), arrivals.end(), from_rank_1)) {
        for (auto& arrival : group.inbox(0).Take({"job", 5, "data:0", 0})) {
          arrivals.push_back(std::move(arrival));
        }
      }
      aborted = absl::GetCurrentTimeNanos();
      group.abort(1).Abort("cancelled");
      // The links end here, after the others have ended.
      while (ended.load() < 3) std::this_thread::yield();
      return;
    }
    const absl::Status status = group.Form(rank).status();
    ended.fetch_add(1);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cancelled"));
    EXPECT_LT(absl::GetCurrentTimeNanos() - aborted, 500'000'000);
  });
}

TEST_P(Formation, AnAbortBeforehandIsToldToThoseThatComeLater) {
  Group group(3, GetParam());
  group.abort(1).Abort("cancelled before");
  EXPECT_EQ(group.Form(1).status(), absl::AbortedError("cancelled before"));
  EXPECT_EQ(group.abort(1).reason(), "cancelled before");
  for (const int rank : {0, 2}) {
    const absl::Status status = group.Form(rank).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 aborted: cancelled before"));
  }
}

// F19: the refusal says how much was asked.
TEST_P(Formation, AnArenaBeyondMemoryIsRefused) {
  Group group(1, GetParam());
  group.options().arena_bytes = int64_t{1} << 55;
  const absl::Status status = group.Form(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(int64_t{1} << 55)));
}

// F34: and the others hear of it, whoever came first.
TEST_P(Formation, AMemberWithoutMemoryTellsTheOthers) {
  Group group(3, GetParam());
  const int64_t arena_bytes = group.options().arena_bytes;
  group.options().arena_bytes = int64_t{1} << 55;
  const absl::Status own = group.Form(1).status();
  EXPECT_EQ(own.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LostMemberOf(own), -1);
  group.options().arena_bytes = arena_bytes;
  const absl::Time start = absl::Now();
  for (const int rank : {0, 2}) {
    const absl::Status status = group.Form(rank).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(own.message())));
    // The last may hear of it from the first.
    EXPECT_TRUE(LostMemberOf(status) == 1 || (rank == 2 && LostMemberOf(status) == 0)) << status;
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_P(Formation, AnAddressOfAnotherKindIsAnError) {
  Group group(2, GetParam());
  GroupSpec spec = group.Spec(1);
  spec.addresses[0] = "tcp:host:1";
  const absl::Status status = group.Form(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tcp:host:1"));
  // Nor can a segment be passed over TCP, or a stranger's host reach an abstract address.
  spec.addresses[0] = GetParam() == Transport::kShm ? group.listener(0).network_address()
                                                    : group.listener(0).address();
  EXPECT_EQ(group.Form(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

// F28: bound before it is advertised, and never the same again.
TEST(DataListener, AddressesAreNeverReused) {
  const std::string first = (*DataListener::Bind())->address();
  const std::string second = (*DataListener::Bind())->address();
  EXPECT_NE(first, second);
  EXPECT_THAT(first, testing::StartsWith("unix-abstract:sherd-"));
  EXPECT_EQ(ConnectLink(first).status().code(), absl::StatusCode::kUnavailable);
}

TEST(DataListener, ListensAtTheHostThatItIsGiven) {
  EXPECT_THAT((*DataListener::Bind("127.0.0.2"))->network_address(),
              testing::MatchesRegex("tcp:127\\.0\\.0\\.2:[1-9][0-9]*"));
  EXPECT_THAT((*DataListener::Bind("localhost"))->network_address(), testing::StartsWith("tcp:"));
  EXPECT_EQ(DataListener::Bind("no host").status().code(), absl::StatusCode::kInvalidArgument);
  // Of a network that documents alone know.
  const absl::Status elsewhere = DataListener::Bind("192.0.2.1").status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("192.0.2.1"));
}

TEST(SharedMemoryDomain, IsTheSameForEveryProcessHere) {
  EXPECT_EQ(SharedMemoryDomain(), SharedMemoryDomain());
  EXPECT_GT(SharedMemoryDomain().size(), 40u);
}

int64_t EntriesOf(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}
int64_t MappedSegments() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  int64_t count = 0;
  while (std::getline(maps, line)) count += line.find("sherd-arena") != std::string::npos;
  return count;
}

// F36
TEST_P(Formation, NothingIsLeftOfAGroup) {
  const auto form_and_end = [](int round) {
    Group group(3, GetParam());
    RunRanks(3, [&](int rank) {
      if (round % 5 == 4 && rank == 0) group.abort(0).Abort("not this one");
      auto formed = group.Form(rank);
      EXPECT_EQ(formed.ok(), round % 5 != 4);
      if (!formed.ok()) return;
      const absl::Status status = (*formed)->Wait((*formed)->Barrier());
      // The first to get here ends it for the others.
      if (round % 5 == 3) {
        (*formed)->Abort("that is enough");
      } else {
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  };
  form_and_end(0);
  const int64_t descriptors = EntriesOf("/proc/self/fd");
  const int64_t threads = EntriesOf("/proc/self/task");
  for (int round = 0; round < 50; ++round) form_and_end(round);
  EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors);
  EXPECT_EQ(MappedSegments(), 0);
  // A joined thread's entry goes a moment after the join.
  const absl::Time patience = absl::Now() + absl::Seconds(5);
  while (EntriesOf("/proc/self/task") > threads && absl::Now() < patience) {
    std::this_thread::yield();
  }
  EXPECT_EQ(EntriesOf("/proc/self/task"), threads);
}

}  // namespace
}  // namespace sherd
