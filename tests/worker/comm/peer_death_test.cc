// Real processes: what the others see when one is killed.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/clock.h"
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

// What a member does until its communicator ends.
using Work = absl::Status (*)(Communicator& comm);

// Runs in the forked process.
[[noreturn]] void MemberMain(int rank, int size, int socket, Work work) {
  auto listener = *DataListener::Bind();
  Address address;
  std::strncpy(address.text.data(), listener->address().c_str(), address.text.size() - 1);
  Send(socket, address);
  GroupSpec group{
      .job_id = "job", .epoch = 1, .group = "data:0", .secret = "s", .rank = rank, .addresses = {}};
  for (int member = 0; member < size; ++member) {
    if (!Receive(socket, &address)) ::_exit(4);
    group.addresses.emplace_back(address.text.data());
  }
  auto comm = FormCommunicator(*listener, group, {.arena_bytes = 1 << 20}, nullptr);
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
  Processes(int size, Work work) {
    for (int rank = 0; rank < size; ++rank) {
      std::array<int, 2> ends = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        MemberMain(rank, size, ends[1], work);
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

// F21, F22
TEST(PeerDeath, AKilledMemberIsNamedByAllOthersWithinHalfASecond) {
  for (int victim = 0; victim < 4; ++victim) {
    Processes processes(4, ReduceForEver);
    ExpectDeathIsSeen(processes, 4, victim);
  }
}

TEST(PeerDeath, IsSeenInAWaitForTheVictim) {
  Processes processes(4, WaitForRankZero);
  ExpectDeathIsSeen(processes, 4, 0);
}

TEST(PeerDeath, OfAFrozenMemberIsSeenToo) {
  Processes processes(3, ReduceForEver);
  processes.Stop(1);
  ExpectDeathIsSeen(processes, 3, 1);
}

}  // namespace
}  // namespace sherd
