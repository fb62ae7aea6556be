// The communicator's counts beside the operating system's: the kernel marks every page that is read
// or written through a mapping of another member's arena.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "communicator_kinds.h"

namespace sherd {
namespace {

const int64_t kPage = ::sysconf(_SC_PAGESIZE);

using Members = std::vector<std::unique_ptr<Communicator>>;

// A mapping of another member's arena.
struct PeerMapping {
  void* begin;
  size_t bytes;
  int64_t referenced;  // bytes of pages that were touched through it
};

// A member's segment begins with its control block, which is mapped by itself.
std::vector<PeerMapping> PeerMappings(const Members& members) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  std::vector<PeerMapping> mappings;
  bool of_peer = false;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    unsigned long long offset = 0;
    long long kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %llx", &begin, &end, &offset) ==
        3) {
      const auto own = [&](const auto& member) {
        return reinterpret_cast<uintptr_t>(member->arena()) == begin;
      };
      of_peer = offset > 0 && line.find("memfd:sherd-arena") != std::string::npos &&
                std::none_of(members.begin(), members.end(), own);
      if (of_peer) mappings.push_back({reinterpret_cast<void*>(begin), end - begin, 0});
    } else if (of_peer && std::sscanf(line.c_str(), "Referenced: %lld", &kib) == 1) {
      mappings.back().referenced = kib * 1024;
    }
  }
  return mappings;
}

// Forgets which pages of this process were read. False where the kernel offers no such thing.
bool ForgetReferences(const Members& members) {
  std::ofstream file("/proc/self/clear_refs");
  file << "1" << std::flush;
  // Processors that remember a page's translation would not mark it again.
  for (const PeerMapping& mapping : PeerMappings(members)) {
    EXPECT_EQ(::mprotect(mapping.begin, mapping.bytes, PROT_NONE), 0);
    EXPECT_EQ(::mprotect(mapping.begin, mapping.bytes, PROT_READ | PROT_WRITE), 0);
  }
  return file.good();
}

int64_t ReferencedOfPeers(const Members& members) {
  int64_t bytes = 0;
  for (const PeerMapping& mapping : PeerMappings(members)) bytes += mapping.referenced;
  return bytes;
}

int64_t SentBytes(const Members& members) {
  int64_t bytes = 0;
  for (const auto& member : members) {
    for (const WireCount& count : member->counts()) bytes += count.bytes;
  }
  return bytes;
}

int64_t SentMessages(const Members& members) {
  int64_t messages = 0;
  for (const auto& member : members) {
    for (const WireCount& count : member->counts()) messages += count.messages;
  }
  return messages;
}

struct Operation {
  const char* name;
  // Enqueues it on `comm` with slices of `bytes`.
  std::function<Ticket(Communicator& comm, int64_t bytes, TreeAccumulator& tree, void* room)> call;
  // How often bytes go through one place: the sum is written where a summand was read.
  int64_t times = 1;
};

// The kernel joins a control block with an arena of the same segment that happens to be mapped
// behind it. What is not to be dumped it keeps apart.
void KeepControlBlocksApart(int64_t control_bytes) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    unsigned long long offset = 0;
    if (line.find("memfd:sherd-arena") == std::string::npos ||
        std::sscanf(line.c_str(), "%" SCNxPTR "-%*x rw-s %llx", &begin, &offset) != 2 ||
        offset > 0) {
      continue;
    }
    EXPECT_EQ(::madvise(reinterpret_cast<void*>(begin), static_cast<size_t>(control_bytes),
                        MADV_DONTDUMP),
              0);
  }
}

TEST(WireCounts, AreThePagesThatTheKernelSawTouched) {
  const Operation operations[] = {
      {"all_gather", [](Communicator& comm, int64_t bytes, TreeAccumulator&,
                        void* room) { return comm.AllGather(comm.arena(), room, bytes); }},
      {"reduce_scatter",
       [](Communicator& comm, int64_t, TreeAccumulator& tree, void*) {
         return comm.ReduceScatter(comm.arena(), comm.size(), &tree);
       }},
      {"reduce_scatter in place",
       [](Communicator& comm, int64_t bytes, TreeAccumulator&, void*) {
         const int64_t segment = comm.size() * bytes / 4;
         return comm.ReduceScatterInPlace(comm.arena(), {segment}, DType::kF32, comm.size());
       }},
      {"all_reduce",
       [](Communicator& comm, int64_t bytes, TreeAccumulator&, void*) {
         return comm.AllReduce(comm.arena(), comm.size() * bytes / 4, DType::kF32, comm.size());
       },
       /*times=*/2},
      {"broadcast", [](Communicator& comm, int64_t bytes, TreeAccumulator&, void*) {
         return comm.Broadcast(comm.arena(), bytes, comm.size() - 1);
       }}};
  if (!ForgetReferences({})) GTEST_SKIP() << "this kernel has no /proc/self/clear_refs";
  const CommunicatorKind kind = AllCommunicatorKinds().front();
  for (const int size : {2, 3, 4}) {
    const int64_t bytes = 24 * kPage;
    auto members = kind.form(size, {.arena_bytes = size * bytes});
    KeepControlBlocksApart(members.front()->control_bytes());
    // A page's first read maps its neighbours too, and they would count as read: map all.
    RunRanks(size, [&](int rank) {
      Communicator& comm = *members[static_cast<size_t>(rank)];
      std::vector<std::byte> all(static_cast<size_t>(size * size * bytes));
      EXPECT_TRUE(comm.Wait(comm.AllGather(comm.arena(), all.data(), size * bytes)).ok());
    });
    MemoryMeter meter;
    for (const Operation& operation : operations) {
      std::vector<TreeAccumulator> trees;
      for (int rank = 0; rank < size; ++rank) {
        trees.emplace_back(meter, Pool::kGrads, bytes / 4, DType::kF32, size);
      }
      std::vector<std::vector<std::byte>> rooms(
          static_cast<size_t>(size), std::vector<std::byte>(static_cast<size_t>(size * bytes)));
      const int64_t sent_before = SentBytes(members);
      const int64_t messages_before = SentMessages(members);
      ASSERT_TRUE(ForgetReferences(members));
      RunRanks(size, [&](int rank) {
        const size_t at = static_cast<size_t>(rank);
        Communicator& comm = *members[at];
        EXPECT_TRUE(comm.Wait(operation.call(comm, bytes, trees[at], rooms[at].data())).ok());
      });
      const int64_t sent = SentBytes(members) - sent_before;
      const int64_t messages = SentMessages(members) - messages_before;
      // Every member sends something to each other one, but for the broadcast's root alone.
      EXPECT_GE(sent, (size - 1) * bytes) << operation.name;
      const int64_t touched = ReferencedOfPeers(members);
      EXPECT_GE(touched, sent / operation.times) << operation.name << " over " << size;
      // A processor may look one page ahead of what it was told to read.
      EXPECT_LE(touched, sent / operation.times + messages * kPage)
          << operation.name << " over " << size;
    }
  }
}

}  // namespace
}  // namespace sherd
