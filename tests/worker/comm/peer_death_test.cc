// Real processes: what the others see when one is killed.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "communicator_kinds.h"
#include "worker/comm/data_link.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {
namespace {

// Messages between the test and its processes, fixed in size; the socket keeps boundaries.
struct Address {
  std::array<char, 128> text = {};
};
struct Report {
  enum class Kind { kAtWork, kEnded } kind = Kind::kAtWork;
  int code = 0;
  int ended_by = -1;
  std::array<char, 512> message = {};
};

template <typename T>
void Send(int socket, const T& value) {
  if (::send(socket, &value, sizeof(value), MSG_NOSIGNAL) != sizeof(value)) ::_exit(3);
}
// False when the other side has ended or says nothing for ten seconds.
template <typename T>
bool Receive(int socket, T* value) {
  pollfd waiting = {socket, POLLIN, 0};
  return ::poll(&waiting, 1, 10'000) == 1 &&
         ::recv(socket, value, sizeof(*value), 0) == sizeof(*value);
}

constexpr int64_t kArenaBytes = 16 << 20;

// What a member does until its communicator ends.
using Work = absl::Status (*)(Communicator& comm);

// Runs in the forked process.
[[noreturn]] void MemberMain(Transport transport, absl::Duration operation_timeout, int rank,
                             int size, int socket, Work work) {
  auto listener = *DataListener::Bind();
  Address address;
  std::strncpy(address.text.data(), AddressOf(*listener, transport).c_str(),
               address.text.size() - 1);
  Send(socket, address);
  GroupSpec group{
      .job_id = "job", .epoch = 1, .group = "data:0", .secret = "s", .rank = rank, .addresses = {}};
  for (int member = 0; member < size; ++member) {
    if (!Receive(socket, &address)) ::_exit(4);
    group.addresses.emplace_back(address.text.data());
  }
  auto comm = FormCommunicator(
      *listener, group,
      {.transport = transport, .arena_bytes = kArenaBytes, .operation_timeout = operation_timeout},
      nullptr);
  if (!comm.ok()) ::_exit(5);
  if (!(*comm)->Wait((*comm)->Barrier()).ok()) ::_exit(6);
  Send(socket, Report{});
  const absl::Status status = work(**comm);
  Report ended{.kind = Report::Kind::kEnded,
               .code = static_cast<int>(status.code()),
               .ended_by = (*comm)->ended_by()};
  std::strncpy(ended.message.data(), std::string(status.message()).c_str(),
               ended.message.size() - 1);
  Send(socket, ended);
  comm->reset();
  ::_exit(0);
}

// Member processes of one group, all at work.
class Processes {
 public:
  Processes(Transport transport, int size, Work work,
            absl::Duration operation_timeout = absl::Minutes(1)) {
    for (int rank = 0; rank < size; ++rank) {
      std::array<int, 2> ends = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        MemberMain(transport, operation_timeout, rank, size, ends[1], work);
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      sockets_.emplace_back(ends[0]);
    }
    std::vector<Address> addresses(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(Receive(socket(rank), &addresses[static_cast<size_t>(rank)]));
    }
    for (int rank = 0; rank < size; ++rank) {
      for (const Address& address : addresses) Send(socket(rank), address);
    }
    for (int rank = 0; rank < size; ++rank) {
      Report at_work;
      EXPECT_TRUE(Receive(socket(rank), &at_work)) << "rank " << rank;
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void Kill(int rank) { ::kill(pids_[static_cast<size_t>(rank)], SIGKILL); }
  void Stop(int rank) { ::kill(pids_[static_cast<size_t>(rank)], SIGSTOP); }
  bool AwaitEnd(int rank, Report* report) { return Receive(socket(rank), report); }

 private:
  int socket(int rank) const { return sockets_[static_cast<size_t>(rank)].get(); }

  std::vector<pid_t> pids_;
  std::vector<FileDescriptor> sockets_;
};

absl::Status ReduceForEver(Communicator& comm) {
  absl::Status status;
  while (status.ok()) status = comm.Wait(comm.AllReduce(comm.arena(), 50'000, DType::kF32, 3));
  return status;
}

absl::Status WaitForRankZero(Communicator& comm) {
  if (comm.rank() != 0) return comm.Wait(comm.Barrier());
  ::pause();
  return absl::OkStatus();
}

void ExpectDeathIsSeen(Processes& processes, int size, int victim) {
  const absl::Time killed = absl::Now();
  processes.Kill(victim);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    Report report;
    ASSERT_TRUE(processes.AwaitEnd(rank, &report)) << "rank " << rank;
    EXPECT_LT(absl::Now() - killed, absl::Milliseconds(500));
    EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kUnavailable))
        << report.message.data();
    EXPECT_EQ(report.ended_by, victim);
    EXPECT_STREQ(report.message.data(),
                 ("rank " + std::to_string(victim) + ": its process went away").c_str());
  }
}

class PeerDeath : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(, PeerDeath, testing::Values(Transport::kShm, Transport::kTcp),
                         [](const auto& test) { return NameOf(test.param); });

// F21, F22
TEST_P(PeerDeath, AKilledMemberIsNamedByAllOthersWithinHalfASecond) {
  for (int victim = 0; victim < 4; ++victim) {
    Processes processes(GetParam(), 4, ReduceForEver);
    ExpectDeathIsSeen(processes, 4, victim);
  }
}

TEST_P(PeerDeath, IsSeenInAWaitForTheVictim) {
  Processes processes(GetParam(), 4, WaitForRankZero);
  ExpectDeathIsSeen(processes, 4, 0);
}

TEST_P(PeerDeath, OfAFrozenMemberIsSeenToo) {
  Processes processes(GetParam(), 3, ReduceForEver);
  processes.Stop(1);
  ExpectDeathIsSeen(processes, 3, 1);
}

// As the agent does when the coordinator says that a lease has lapsed: from another thread, while
// the operation is stuck in the middle of its data. What may not take long is Abort and all that
// follows, so the time from there is the answer.
absl::Status AbortWhenStuck(Communicator& comm) {
  std::atomic<int64_t> operations{0};
  std::atomic<int64_t> aborted{0};
  absl::Notification ended;
  std::thread agent([&] {
    // Stuck: not one more within a tick, which is many times what one takes.
    for (int64_t seen = -1; operations.load() != seen;) {
      seen = operations.load();
      ended.WaitForNotificationWithTimeout(absl::Milliseconds(300));
    }
    aborted = absl::GetCurrentTimeNanos();
    comm.Abort("its lease has lapsed");
  });
  absl::Status status;
  while (status.ok()) {
    status = comm.Wait(comm.AllReduce(comm.arena(), kArenaBytes / 4, DType::kF32, comm.size()));
    operations.fetch_add(1);
  }
  // Ended by the other's abort, if not by its own.
  const int64_t now = absl::GetCurrentTimeNanos();
  const absl::Duration took = absl::Nanoseconds(aborted.load() == 0 ? 0 : now - aborted.load());
  ended.Notify();
  agent.join();
  return absl::Status(status.code(),
                      absl::StrCat(took < absl::Milliseconds(500) ? "soon: " : "late: ",
                                   std::string(status.message())));
}

// F29: a frozen member neither reads nor writes, and its kernel keeps its side open.
TEST_P(PeerDeath, AbortEndsTheOthersWhileAMemberIsFrozen) {
  Processes processes(GetParam(), 3, AbortWhenStuck);
  processes.Stop(1);
  for (const int rank : {0, 2}) {
    Report report;
    ASSERT_TRUE(processes.AwaitEnd(rank, &report));
    EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kAborted));
    const std::string message = report.message.data();
    // Whoever aborts first tells the other.
    EXPECT_TRUE(message.starts_with("soon: ")) << message;
    EXPECT_TRUE(message.ends_with("its lease has lapsed")) << message;
  }
}

// F34: without a lease, too, a wait ends and names who is missing. A survivor that already has what
// the frozen member said to it waits for the other survivor, too, which waits for the frozen one,
// and it may be the first to give up: then all name both.
TEST_P(PeerDeath, AFrozenMemberIsNamedAtTheDeadline) {
  Processes processes(GetParam(), 3, ReduceForEver, absl::Milliseconds(400));
  processes.Stop(1);
  for (const int rank : {0, 2}) {
    Report report;
    ASSERT_TRUE(processes.AwaitEnd(rank, &report));
    EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kDeadlineExceeded));
    const std::string message = report.message.data();
    EXPECT_TRUE(absl::StrContains(message, ": rank 1 did not ") ||
                absl::StrContains(message, ": ranks 0, 1 did not ") ||
                absl::StrContains(message, ": ranks 1, 2 did not "))
        << message;
    EXPECT_NE(message.find("all_reduce #"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace sherd
