#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

// What a kernel that runs on the host executor sees of it. Light: every kernel includes it.

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace sherd::simt {

class Executor;

// A place in a kernel's source: a default argument names the caller's.
using Site = std::source_location;

// Where the running thread is.
struct Context {
  uint3 thread{}, block{};
  dim3 block_size, grid_size;
  std::byte* dynamic_shared = nullptr;
  Executor* executor = nullptr;
};
// Of the executor that runs on this thread of the system; null outside of a kernel.
extern constinit thread_local Context* context;

// One operation of a warp: its lanes leave their values, and wait until all of its mask have.
struct Exchange {
  static constexpr int kWords = 3;
  unsigned mask, arrived, reading;
  int operation;
  uint64_t values[32][kWords];
};

// Of the running thread. All fail the launch, with the place, when a rule of CUDA is broken.
inline unsigned Lane() {
  const Context& c = *context;
  return (c.thread.x + c.block_size.x * (c.thread.y + c.block_size.y * c.thread.z)) % 32;
}
void SyncThreads(Site site);
// Whether the value was true for any thread of the block.
bool SyncThreadsOr(bool value, Site site);
// Leaves `words` (at most kWords) for the lanes of `mask`, waits for theirs, and gives all of them
// until FinishReading. `operation` tells operations apart; `orders_memory`: what a lane wrote
// before is seen by the others after.
const Exchange& JoinWarp(unsigned mask, int operation, const uint64_t* words, int count,
                         bool orders_memory, Site site);
void FinishReading(const Exchange& exchange);
// A variable of the block's shared memory, the same for all of its threads: at first all ones.
void* SharedVariable(const void* key, size_t bytes, Site site);
// An asynchronous copy into shared memory: the target holds all ones until the thread waits for the
// group of copies that it was committed with.
void CopyLater(void* to, const void* from, size_t bytes, Site site);
void CommitCopies();
// Until at most `groups` of the latest groups are under way.
void WaitForCopies(int groups);

// Runs a grid on this thread's executor (Executor::Use); false when a rule was broken.
struct GridLaunch {
  const char* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  void (*run)(void* call);
  void* call;
};
bool RunGrid(const GridLaunch& launch);

}  // namespace sherd::simt
