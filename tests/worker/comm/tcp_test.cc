// What is special to groups that share no memory: the wire.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "communicator_kinds.h"
#include "network_namespaces.h"
#include "reference_tree.h"
#include "worker/comm/link_socket.h"
#include "worker/comm/op_descriptor.h"

namespace sherd {
namespace {

using testing::HasSubstr;

CommunicatorKind Tcp() { return AllCommunicatorKinds().back(); }

// What the kernel has sent over all TCP connections of this process, without what it sent twice.
int64_t KernelSentBytes() {
  int64_t bytes = 0;
  DIR* const descriptors = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(descriptors)) {
    tcp_info info = {};
    socklen_t length = sizeof(info);
    if (::getsockopt(std::atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
      bytes += static_cast<int64_t>(info.tcpi_bytes_sent) -
               static_cast<int64_t>(info.tcpi_bytes_retrans);
    }
  }
  ::closedir(descriptors);
  return bytes;
}

int64_t CountedBytes(const std::vector<std::unique_ptr<Communicator>>& members) {
  int64_t bytes = 0;
  for (const auto& member : members) {
    for (const WireCount& count : member->counts()) bytes += count.bytes;
  }
  return bytes;
}

struct Operation {
  const char* name;
  // Enqueues it on `comm` with slices of `bytes`.
  std::function<Ticket(Communicator& comm, int64_t bytes, TreeAccumulator& tree, void* room)> call;
};
const std::vector<Operation>& Operations() {
  static const auto* const operations = new std::vector<Operation>{
      {"all_gather", [](Communicator& comm, int64_t bytes, TreeAccumulator&,
                        void* room) { return comm.AllGather(comm.arena(), room, bytes); }},
      {"reduce_scatter",
       [](Communicator& comm, int64_t, TreeAccumulator& tree, void*) {
         return comm.ReduceScatter(comm.arena(), comm.size() - 1, &tree);
       }},
      {"reduce_scatter in place",
       [](Communicator& comm, int64_t bytes, TreeAccumulator&, void*) {
         return comm.ReduceScatterInPlace(comm.arena(), {comm.size() * bytes / 4}, DType::kF32,
                                          comm.size());
       }},
      {"all_reduce",
       [](Communicator& comm, int64_t bytes, TreeAccumulator&, void*) {
         return comm.AllReduce(comm.arena(), comm.size() * bytes / 4 - 1, DType::kF32, comm.size());
       }},
      {"broadcast", [](Communicator& comm, int64_t bytes, TreeAccumulator&,
                       void*) { return comm.Broadcast(comm.arena(), bytes, 0); }},
      {"exchange", [](Communicator& comm, int64_t, TreeAccumulator&,
                      void* room) { return comm.Exchange(comm.arena(), room, 1001); }},
      {"barrier",
       [](Communicator& comm, int64_t, TreeAccumulator&, void*) { return comm.Barrier(); }}};
  return *operations;
}

// The framing: a descriptor from every member to every other one an operation, and before that on
// each of the two links of a pair one Hello and two Segments.
TEST(TcpWire, CountsAreTheKernelsByteCountsLessTheFraming) {
  const LinkHello hello{.job_id = "job", .group = "data:0", .secret = "s3cret"};
  const int64_t link_bytes =
      TcpMessageBytes(hello) + 2 * TcpMessageBytes(LinkSegment{.secret = "s3cret"});
  for (const int size : {2, 3, 5}) {
    const int64_t bytes = 700'000;  // several pieces, and not whole ones
    const int64_t pairs = size * (size - 1) / 2;
    const int64_t before = KernelSentBytes();
    auto members = Tcp().form(size, {.arena_bytes = size * bytes});
    int64_t expected = before + pairs * 2 * link_bytes;
    EXPECT_EQ(KernelSentBytes(), expected) << "formed " << size;
    MemoryMeter meter;
    for (const Operation& operation : Operations()) {
      const int64_t counted = CountedBytes(members);
      std::vector<TreeAccumulator> trees;
      for (int rank = 0; rank < size; ++rank) {
        trees.emplace_back(meter, Pool::kGrads, bytes / 4, DType::kF32, size);
      }
      RunRanks(size, [&](int rank) {
        const auto at = static_cast<size_t>(rank);
        Communicator& comm = *members[at];
        std::vector<std::byte> room(static_cast<size_t>(size * bytes));
        EXPECT_TRUE(comm.Wait(operation.call(comm, bytes, trees[at], room.data())).ok());
      });
      expected += CountedBytes(members) - counted + 2 * pairs * kWireDescriptorBytes;
      EXPECT_EQ(KernelSentBytes(), expected) << operation.name << " over " << size;
    }
  }
}

// A connected pair of TCP links.
struct Ends {
  FileDescriptor near;
  FileDescriptor far;
};
Ends ConnectedEnds() {
  std::string address;
  const FileDescriptor listener = *ListenForTcpLinks("127.0.0.1", &address);
  Ends ends;
  ends.near = *ConnectLink(address);
  while (!ends.far.valid()) ends.far = *AcceptLink(listener.get());
  while (CheckAttempt(ends.near.get()) == LinkAttempt::kUnderWay) {
  }
  return ends;
}
ReceivedLinkMessage Await(int link) {
  while (true) {
    ReceivedLinkMessage received = ReceiveLinkMessage(link);
    if (received.input != LinkInput::kNothing) return received;
  }
}

TEST(TcpLink, MessagesComeWholeHoweverTheStreamIsCutAndNothingBehindThemIsTaken) {
  // As SendLinkMessage puts it on the wire.
  const Ends recorded = ConnectedEnds();
  const LinkHello hello{.job_id = "job", .epoch = 3, .group = "data:0", .secret = "s", .to = 1};
  ASSERT_TRUE(SendLinkMessage(recorded.near.get(), hello).ok());
  std::string wire(static_cast<size_t>(TcpMessageBytes(hello)), '\0');
  ASSERT_EQ(::recv(recorded.far.get(), wire.data(), wire.size(), MSG_WAITALL),
            static_cast<ssize_t>(wire.size()));
  const Ends ends = ConnectedEnds();
  for (size_t at = 0; at < wire.size(); ++at) {
    EXPECT_EQ(ReceiveLinkMessage(ends.far.get()).input, LinkInput::kNothing) << at;
    ASSERT_EQ(::send(ends.near.get(), wire.data() + at, 1, 0), 1);
  }
  ASSERT_EQ(::send(ends.near.get(), "data", 4, 0), 4);
  const ReceivedLinkMessage received = Await(ends.far.get());
  ASSERT_EQ(received.input, LinkInput::kMessage);
  EXPECT_EQ(std::get<LinkHello>(received.message).epoch, 3);
  std::string behind(4, '\0');
  while (::recv(ends.far.get(), behind.data(), 4, MSG_PEEK) != 4) {
  }
  EXPECT_EQ(behind, "data");
}

TEST(TcpLink, AnEndInTheMiddleOfAMessageIsAnEnd) {
  Ends ends = ConnectedEnds();
  ASSERT_EQ(::send(ends.near.get(), "\x40\0\0\0half", 8, 0), 8);
  EXPECT_EQ(ReceiveLinkMessage(ends.far.get()).input, LinkInput::kNothing);
  ends.near.Close();
  EXPECT_EQ(Await(ends.far.get()).input, LinkInput::kClosed);
}

TEST(TcpLink, ALengthBeyondAnyMessageIsGarbage) {
  for (const char* length : {"\xff\xff\xff\x7f", "\x01\x40\0\0"}) {
    const Ends ends = ConnectedEnds();
    ASSERT_EQ(::send(ends.near.get(), length, 4, 0), 4);
    EXPECT_EQ(Await(ends.far.get()).input, LinkInput::kGarbage);
  }
  const Ends ends = ConnectedEnds();
  ASSERT_EQ(::send(ends.near.get(), "\0\0\0\0", 4, 0), 4);
  EXPECT_EQ(Await(ends.far.get()).input, LinkInput::kGarbage);
}

TEST(TcpLink, TheLastMessageArrivesThoughTheSenderLeavesItsOwnUnread) {
  Ends ends = ConnectedEnds();
  ASSERT_TRUE(SendLinkMessage(ends.far.get(), LinkGoodbye{.text = "unread"}).ok());
  ASSERT_TRUE(SendLinkMessage(ends.near.get(), LinkGoodbye{.text = "last words"}).ok());
  CloseGently(ends.near);
  const ReceivedLinkMessage received = Await(ends.far.get());
  ASSERT_EQ(received.input, LinkInput::kMessage);
  EXPECT_EQ(std::get<LinkGoodbye>(received.message).text, "last words");
  EXPECT_EQ(Await(ends.far.get()).input, LinkInput::kClosed);
}

// Members 0 and 1 on one side of the cable, member 2 on the other; each at work on its own thread.
class AcrossNamespaces : public testing::Test {
 protected:
  static constexpr int kMembers = 3;
  static constexpr int64_t kArenaBytes = 4 << 20;

  void SetUp() override {
    if (!namespaces_.made()) {
      GTEST_SKIP() << "NOT TESTED: this process may not make network namespaces (root, iproute2)";
    }
  }

  void InGroup(const std::function<void(Communicator& comm)>& member_main) {
    std::vector<std::unique_ptr<DataListener>> listeners(kMembers);
    RunRanks(kMembers, [&](int rank) {
      namespaces_.Enter(rank / 2);
      listeners[static_cast<size_t>(rank)] = *DataListener::Bind(namespaces_.address(rank / 2));
    });
    GroupSpec group{.job_id = "job",
                    .epoch = 1,
                    .group = "data:0",
                    .secret = "s3cret",
                    .rank = 0,
                    .addresses = {}};
    for (const auto& listener : listeners) group.addresses.push_back(listener->network_address());
    EXPECT_THAT(group.addresses[0], HasSubstr("10.77.0.1"));
    EXPECT_THAT(group.addresses[2], HasSubstr("10.77.0.2"));
    RunRanks(kMembers, [&](int rank) {
      namespaces_.Enter(rank / 2);
      GroupSpec own = group;
      own.rank = rank;
      auto formed =
          FormCommunicator(*listeners[static_cast<size_t>(rank)], own,
                           {.transport = Transport::kTcp, .arena_bytes = kArenaBytes}, nullptr);
      ASSERT_TRUE(formed.ok()) << formed.status();
      member_main(**formed);
    });
  }

  NetworkNamespaces namespaces_;
};

TEST_F(AcrossNamespaces, AGroupReducesAndGathersWithTheBitsOfTheTree) {
  constexpr int64_t kElements = 500'001;
  std::vector<Values> inputs;
  for (int rank = 0; rank < kMembers; ++rank) {
    std::mt19937_64 random(static_cast<uint64_t>(rank));
    inputs.push_back(RandomValues(random, DType::kF32, kElements));
  }
  const Values sum = ReferenceTree(DType::kF32, kElements).Sum(inputs);
  InGroup([&](Communicator& comm) {
    const Values& mine = inputs[static_cast<size_t>(comm.rank())];
    std::memcpy(comm.arena(), mine.data(), mine.size());
    Values gathered(kMembers * mine.size());
    ASSERT_TRUE(
        comm.Wait(comm.AllGather(comm.arena(), gathered.data(), static_cast<int64_t>(mine.size())))
            .ok());
    EXPECT_EQ(Values(gathered.begin() + static_cast<int64_t>(mine.size()),
                     gathered.begin() + 2 * static_cast<int64_t>(mine.size())),
              inputs[1]);
    ASSERT_TRUE(comm.Wait(comm.AllReduce(comm.arena(), kElements, DType::kF32, kMembers)).ok());
    EXPECT_EQ(Values(comm.arena(), comm.arena() + sum.size()), sum);
  });
}

// F29: a network that loses everything tells nobody; the lease does, and then all ends at once.
TEST_F(AcrossNamespaces, AbortEndsAMemberThatNoPacketReachesAnyMore) {
  std::atomic<int> operations{0};
  absl::Notification cut;
  InGroup([&](Communicator& comm) {
    std::atomic<int64_t> aborted{0};
    absl::Notification ended;
    std::thread agent([&] {
      cut.WaitForNotification();
      // Stuck: not one more within a tick, which is many times what one takes.
      for (int seen = -1; operations.load() != seen;) {
        seen = operations.load();
        ended.WaitForNotificationWithTimeout(absl::Milliseconds(300));
      }
      aborted = absl::GetCurrentTimeNanos();
      comm.Abort("its lease has lapsed");
    });
    absl::Status status;
    while (status.ok()) {
      status = comm.Wait(comm.AllReduce(comm.arena(), kArenaBytes / 4, DType::kF32, kMembers));
      if (operations.fetch_add(1) != 20) continue;
      namespaces_.CutCable();
      cut.Notify();
    }
    const int64_t now = absl::GetCurrentTimeNanos();
    ended.Notify();
    agent.join();
    EXPECT_THAT(std::string(status.message()), HasSubstr("its lease has lapsed"));
    // Unless it was the other member on its side that ended it first.
    if (status == absl::AbortedError("its lease has lapsed")) {
      EXPECT_LT(absl::Nanoseconds(now - aborted), absl::Milliseconds(500));
    }
  });
}

// F21: a machine that answers no more is known without the lease: links between pairs are probed.
TEST_F(AcrossNamespaces, AMachineThatAnswersNothingEndsTheGroup) {
  std::atomic<int> operations{0};
  InGroup([&](Communicator& comm) {
    absl::Status status;
    while (status.ok()) {
      status = comm.Wait(comm.AllReduce(comm.arena(), kArenaBytes / 4, DType::kF32, kMembers));
      if (operations.fetch_add(1) == 20) namespaces_.SwallowAnswers();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("went away"));
  });
}

}  // namespace
}  // namespace sherd
