// The communicator's counts beside the operating system's: the kernel marks every page that is read
// through a mapping of another member's arena.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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

// A mapping of another member's arena: members map the arenas of others read-only.
struct PeerMapping {
  void* begin;
  size_t bytes;
  int64_t referenced;  // bytes of pages that were read through it
};

std::vector<PeerMapping> PeerMappings() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  std::vector<PeerMapping> mappings;
  bool of_peer = false;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char rights[8] = {};
    long long kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %7s", &begin, &end, rights) == 3) {
      of_peer =
          std::string(rights) == "r--s" && line.find("memfd:sherd-arena") != std::string::npos;
      if (of_peer) mappings.push_back({reinterpret_cast<void*>(begin), end - begin, 0});
    } else if (of_peer && std::sscanf(line.c_str(), "Referenced: %lld", &kib) == 1) {
      mappings.back().referenced = kib * 1024;
    }
  }
  return mappings;
}

// Forgets which pages of this process were read. False where the kernel offers no such thing.
bool ForgetReferences() {
  std::ofstream file("/proc/self/clear_refs");
  file << "1" << std::flush;
  // Processors that remember a page's translation would not mark it again.
  for (const PeerMapping& mapping : PeerMappings()) {
    EXPECT_EQ(::mprotect(mapping.begin, mapping.bytes, PROT_NONE), 0);
    EXPECT_EQ(::mprotect(mapping.begin, mapping.bytes, PROT_READ), 0);
  }
  return file.good();
}

int64_t ReferencedOfPeers() {
  int64_t bytes = 0;
  for (const PeerMapping& mapping : PeerMappings()) bytes += mapping.referenced;
  return bytes;
}

int64_t SentBytes(const std::vector<std::unique_ptr<Communicator>>& members) {
  int64_t bytes = 0;
  for (const auto& member : members) {
    for (const WireCount& count : member->counts()) bytes += count.bytes;
  }
  return bytes;
}

int64_t SentMessages(const std::vector<std::unique_ptr<Communicator>>& members) {
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
};

TEST(WireCounts, AreThePagesThatTheKernelSawRead) {
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
       }},
      {"broadcast", [](Communicator& comm, int64_t bytes, TreeAccumulator&, void*) {
         return comm.Broadcast(comm.arena(), bytes, comm.size() - 1);
       }}};
  if (!ForgetReferences()) GTEST_SKIP() << "this kernel has no /proc/self/clear_refs";
  const CommunicatorKind kind = AllCommunicatorKinds().front();
  for (const int size : {2, 3, 4}) {
    const int64_t bytes = 24 * kPage;
    auto members = kind.form(size, {.arena_bytes = size * bytes});
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
      ASSERT_TRUE(ForgetReferences());
      RunRanks(size, [&](int rank) {
        const size_t at = static_cast<size_t>(rank);
        Communicator& comm = *members[at];
        EXPECT_TRUE(comm.Wait(operation.call(comm, bytes, trees[at], rooms[at].data())).ok());
      });
      const int64_t sent = SentBytes(members) - sent_before;
      const int64_t messages = SentMessages(members) - messages_before;
      // Every member sends something to each other one, but for the broadcast's root alone.
      EXPECT_GE(sent, (size - 1) * bytes) << operation.name;
      const int64_t read = ReferencedOfPeers();
      EXPECT_GE(read, sent) << operation.name << " over " << size;
      // A processor may look one page ahead of what it was told to read. An all-reduce reads a
      // peer's data twice, but never the same part.
      EXPECT_LE(read, sent + messages * kPage) << operation.name << " over " << size;
    }
  }
}

}  // namespace
}  // namespace sherd
